"""Between records of streams and columns of tables: their types, and both directions."""
