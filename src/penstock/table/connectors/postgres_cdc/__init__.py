"""`postgres-cdc`: a PostgreSQL table and its changes."""
