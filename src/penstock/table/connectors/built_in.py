"""The connectors that come with Penstock."""

from __future__ import annotations

from penstock.table.connectors.blackhole import BlackholeConnector
from penstock.table.connectors.connector import Connectors
from penstock.table.connectors.datagen.connector import DatagenConnector
from penstock.table.connectors.nexmark.connector import NexmarkConnector
from penstock.table.connectors.print import PrintConnector


def built_in() -> Connectors:
    """All of them."""
    return Connectors(BlackholeConnector(), DatagenConnector(), NexmarkConnector(), PrintConnector())
