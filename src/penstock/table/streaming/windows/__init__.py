"""Windows of tables, and aggregates of them."""
