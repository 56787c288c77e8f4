"""`socket`: rows that a server sends as text."""
