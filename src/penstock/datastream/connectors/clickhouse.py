"""ClickHouse: a source of tables, and a sink of batches with deduplication tokens."""

from penstock.connectors.clickhouse import ClickHouseSink, ClickHouseTable, InsertSettings
from penstock.connectors.clickhouse_source import ClickHouseSource

__all__ = ["ClickHouseSink", "ClickHouseSource", "ClickHouseTable", "InsertSettings"]
