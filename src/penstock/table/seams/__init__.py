"""Between the tables of a program and its streams, data frames and Arrow tables."""
