"""Operators on one record after another: stateless ones, process functions, two inputs, broadcast state."""
