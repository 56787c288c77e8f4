"""A source that generates its records with a function, and its rate limits."""

from penstock.connectors.generator import DataGeneratorSource
from penstock.connectors.rate_limiter import RateLimiterStrategy

__all__ = ["DataGeneratorSource", "RateLimiterStrategy"]
