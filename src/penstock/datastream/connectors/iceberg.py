"""Apache Iceberg tables as sources and sinks, under the names of Iceberg's connector for Flink."""

from __future__ import annotations

from penstock.connectors.iceberg.scan import StreamingStartingStrategy
from penstock.connectors.iceberg.sink import IcebergSink, IcebergSinkBuilder
from penstock.connectors.iceberg.source import IcebergSource, IcebergSourceBuilder
from penstock.connectors.iceberg.tables import CatalogLoader, TableLoader

__all__ = [
    "CatalogLoader",
    "IcebergSink",
    "IcebergSinkBuilder",
    "IcebergSource",
    "IcebergSourceBuilder",
    "StreamingStartingStrategy",
    "TableLoader",
]
