"""Operators that process record by record: stateless ones, process functions, two inputs, broadcast state."""
