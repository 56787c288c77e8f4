"""Window table functions and window aggregates."""
