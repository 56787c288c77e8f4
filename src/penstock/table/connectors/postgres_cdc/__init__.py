"""`postgres-cdc`: a table of PostgreSQL and its changes."""
