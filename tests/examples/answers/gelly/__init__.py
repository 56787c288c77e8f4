"""What the examples of graphs must give."""
