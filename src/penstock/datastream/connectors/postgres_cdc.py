"""Changes of PostgreSQL tables, under the names of Flink's connector."""

from penstock.connectors.postgres.cdc.source import PostgresSource, PostgresSourceBuilder

__all__ = ["PostgresSource", "PostgresSourceBuilder"]
