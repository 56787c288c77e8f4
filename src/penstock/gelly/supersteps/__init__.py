"""Supersteps of users' functions: what vertex-centric, scatter-gather and gather-sum-apply iterations share."""
