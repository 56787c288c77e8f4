"""What a query means, as a tree of operations on tables."""
