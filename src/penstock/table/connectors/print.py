"""The `print` connector: prints rows to the program's standard output, in Flink's format."""

from __future__ import annotations

from typing import Final

from penstock.base.config_options import ConfigOptions
from penstock.connectors.print import PrintSink
from penstock.table.connectors.connector import TableConnector
from penstock.table.connectors.table_options import TableOptions
from penstock.table.connectors.tables import TableWriter
from penstock.table.plan.changes import ALL
from penstock.table.plan.logical import Write

IDENTIFIER: Final = (
    ConfigOptions.key("print-identifier").string_type().no_default_value().with_description("The prefix of each line.")
)


class PrintConnector(TableConnector):
    """See the module docstring."""

    name = "print"
    optional_options = (IDENTIFIER,)
    takes_partitions = True

    def writer(self, write: Write, options: TableOptions) -> TableWriter:
        """Return a writer that accepts all changes."""
        return TableWriter(
            PrintSink(options.read(IDENTIFIER)), ALL, takes_either=True, takes_text=True, follows_query=True
        )
