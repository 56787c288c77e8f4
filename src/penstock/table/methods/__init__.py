"""The methods of Table API expressions, in modules by subject. Each method builds an SQL syntax node."""
