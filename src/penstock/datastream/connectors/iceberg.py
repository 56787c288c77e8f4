"""Apache Iceberg tables as sources and sinks, under the names of Iceberg's connector for Flink."""

from __future__ import annotations

from penstock.connectors.iceberg.catalog import CatalogLoader, TableLoader
from penstock.connectors.iceberg.scanned import StreamingStartingStrategy
from penstock.connectors.iceberg.sink import IcebergSink, IcebergSinkBuilder
from penstock.connectors.iceberg.source import IcebergSource, IcebergSourceBuilder

__all__ = [
    "CatalogLoader",
    "IcebergSink",
    "IcebergSinkBuilder",
    "IcebergSource",
    "IcebergSourceBuilder",
    "StreamingStartingStrategy",
    "TableLoader",
]
