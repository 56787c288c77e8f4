"""A source that makes its records by a function, and how fast it goes."""

from penstock.connectors.generator import DataGeneratorSource
from penstock.connectors.rate_limiter import RateLimiterStrategy

__all__ = ["DataGeneratorSource", "RateLimiterStrategy"]
