"""Window operators: aligned windows, sessions, and the general operator with triggers and evictors."""
