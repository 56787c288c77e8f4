"""`blackhole`: discards all rows."""

from __future__ import annotations

from penstock.connectors.print import DiscardingSink
from penstock.table.connectors.connector import TableConnector
from penstock.table.connectors.table_options import TableOptions
from penstock.table.connectors.tables import TableWriter
from penstock.table.plan.changes import ALL
from penstock.table.plan.logical import Write


class BlackholeConnector(TableConnector):
    """See the module docstring."""

    name = "blackhole"
    takes_partitions = True

    def writer(self, write: Write, options: TableOptions) -> TableWriter:
        """Return a writer that accepts all changes."""
        return TableWriter(DiscardingSink(), ALL, wants_before=False, takes_columns=True, follows_query=True)
