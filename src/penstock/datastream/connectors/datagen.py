"""A source that generates its records with a function, and its rate limits."""

from penstock.connectors.split_reader import DataGeneratorSource, RateLimiterStrategy

__all__ = ["DataGeneratorSource", "RateLimiterStrategy"]
