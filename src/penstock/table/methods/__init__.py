"""What an expression of the Table API offers, in files by subject. Each method makes a node of SQL's syntax."""
