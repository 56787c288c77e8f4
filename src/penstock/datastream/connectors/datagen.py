"""A source that generates its records with a function, and its rate limits."""

from penstock.connectors.generator import DataGeneratorSource
from penstock.connectors.split_reader import RateLimiterStrategy

__all__ = ["DataGeneratorSource", "RateLimiterStrategy"]
