"""The connectors that come with Penstock."""

from __future__ import annotations

from penstock.table.connectors.blackhole import BlackholeConnector
from penstock.table.connectors.connector import Connectors
from penstock.table.connectors.datagen.connector import DatagenConnector
from penstock.table.connectors.filesystem.connector import FilesystemConnector
from penstock.table.connectors.formats.built_in import built_in_formats
from penstock.table.connectors.nexmark.connector import NexmarkConnector
from penstock.table.connectors.print import PrintConnector
from penstock.table.connectors.socket import SocketConnector


def built_in() -> Connectors:
    """All of them."""
    formats = built_in_formats()
    return Connectors(
        BlackholeConnector(),
        DatagenConnector(),
        FilesystemConnector(formats),
        NexmarkConnector(),
        PrintConnector(),
        SocketConnector(formats),
    )
