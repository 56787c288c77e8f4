"""The available connectors: built into Penstock, or provided by installed packages."""

from __future__ import annotations

import importlib.metadata
from typing import Final

from penstock.sql.connectors.datagen import DatagenConnector
from penstock.sql.connectors.delta import DeltaConnector
from penstock.sql.connectors.filesystem.connector import FilesystemConnector
from penstock.sql.connectors.iceberg import IcebergConnector
from penstock.sql.connectors.jdbc import JdbcConnector
from penstock.sql.connectors.kafka.connector import KafkaConnector, UpsertKafkaConnector
from penstock.sql.connectors.nexmark import NexmarkConnector
from penstock.sql.connectors.postgres_cdc import PostgresCdcConnector
from penstock.sql.connectors.spark import BlackholeConnector, PrintConnector, SocketConnector, SparkConnector
from penstock.sql.formats.built_in import built_in_formats
from penstock.sql.tables.connector import Connectors

#: the entry point group where packages register connectors; each entry is a subclass of `TableConnector`
ENTRY_POINTS: Final = "penstock.table.connectors"


def built_in() -> Connectors:
    """Return all connectors. A package's connector replaces a built-in one of the same name."""
    formats = built_in_formats()
    return Connectors(
        BlackholeConnector(),
        DatagenConnector(),
        DeltaConnector(),
        FilesystemConnector(formats),
        IcebergConnector(),
        JdbcConnector(),
        KafkaConnector(formats),
        NexmarkConnector(),
        PostgresCdcConnector(),
        PrintConnector(),
        SocketConnector(formats),
        SparkConnector(),
        UpsertKafkaConnector(formats),
        *(point.load()() for point in importlib.metadata.entry_points(group=ENTRY_POINTS)),
    )


__all__ = ["built_in"]
