"""`blackhole`: takes all rows and keeps none."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.connectors.print import DiscardingSink
from penstock.table.connectors.connector import TableConnector
from penstock.table.connectors.tables import TableWriter
from penstock.table.plan.changes import ALL
from penstock.table.plan.logical import Write


class BlackholeConnector(TableConnector):
    """See the module's text."""

    name = "blackhole"

    def writer(self, write: Write, options: Mapping[str, str]) -> TableWriter:
        """Takes all changes."""
        return TableWriter(DiscardingSink(), ALL, wants_before=False, follows_query=True)
