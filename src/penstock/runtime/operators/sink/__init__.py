"""The sink operator: writes, prepares, commits."""
