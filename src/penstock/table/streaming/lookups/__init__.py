"""Look-up joins: tables that are asked for the rows of keys, with caches and retries."""
