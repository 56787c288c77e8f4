"""Supersteps of user-defined functions, shared by vertex-centric, scatter-gather and gather-sum-apply iterations."""
