"""ClickHouse: a sink of batches with deduplication tokens."""

from penstock.connectors.clickhouse import ClickHouseSink, ClickHouseTable, InsertSettings

__all__ = ["ClickHouseSink", "ClickHouseTable", "InsertSettings"]
