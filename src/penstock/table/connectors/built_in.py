"""The connectors that come with Penstock."""

from __future__ import annotations

from penstock.table.connectors.blackhole import BlackholeConnector
from penstock.table.connectors.connector import Connectors
from penstock.table.connectors.print import PrintConnector
from penstock.table.connectors.spark import SparkConnector


def built_in() -> Connectors:
    """All of them."""
    return Connectors(BlackholeConnector(), PrintConnector(), SparkConnector())
