"""`print`: shows rows on the program's standard output, as Flink prints them."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.connectors.print import PrintSink
from penstock.table.connectors.connector import TableConnector
from penstock.table.connectors.tables import TableWriter
from penstock.table.plan.changes import ALL
from penstock.table.plan.logical import Write

IDENTIFIER = "print-identifier"


class PrintConnector(TableConnector):
    """See the module's text. `print-identifier`: goes in front of each line."""

    name = "print"
    options = frozenset({IDENTIFIER})

    def writer(self, write: Write, options: Mapping[str, str]) -> TableWriter:
        """Takes all changes."""
        return TableWriter(PrintSink(options.get(IDENTIFIER)), ALL, takes_text=True, follows_query=True)
