"""Changes of PostgreSQL tables, under the names of Flink's connector."""

from penstock.connectors.postgres.cdc.options import CdcSettings, make_settings
from penstock.connectors.postgres.cdc.source import PostgresEventSource, PostgresSource, PostgresSourceBuilder

__all__ = ["CdcSettings", "PostgresEventSource", "PostgresSource", "PostgresSourceBuilder", "make_settings"]
