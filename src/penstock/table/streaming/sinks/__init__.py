"""What happens to rows before a table takes them: constraints, and rows that share a primary key."""
