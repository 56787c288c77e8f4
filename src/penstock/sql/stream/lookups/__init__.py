"""Lookup joins: operators that query a table for the rows of keys, with caches and retries."""
