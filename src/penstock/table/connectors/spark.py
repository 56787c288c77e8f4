"""`spark`: a table that Spark knows, or files that Spark reads. Batches read it where it lies."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from penstock.table.connectors.connector import TableConnector
from penstock.table.connectors.tables import TableReader
from penstock.table.data.errors import ValidationError
from penstock.table.plan.logical import Scan

TABLE: Final = "table"
PATH: Final = "path"
FORMAT: Final = "format"


class SparkConnector(TableConnector):
    """See the module's text.

    Options: `table`, the name of a table or view of Spark's session; or `path`, and `format` as Spark calls it
    (`parquet` unless it is given). Columns go by their order.
    """

    name = "spark"
    options = frozenset({TABLE, PATH, FORMAT})

    def reader(self, scan: Scan, options: Mapping[str, str]) -> TableReader:
        """Reads a data frame, in batch only."""
        table, path = options.get(TABLE), options.get(PATH)
        if table is not None and path is None:
            return TableReader(None, frame=partial(_table, table))
        if path is not None and table is None:
            return TableReader(None, frame=partial(_files, path, options.get(FORMAT, "parquet")))
        raise ValidationError(
            f"connector 'spark' of table {'.'.join(scan.path)} takes one of the options '{TABLE}' and '{PATH}'"
        )


def _table(name: str, spark: Any) -> Any:
    return spark.table(name)


def _files(path: str, kind: str, spark: Any) -> Any:
    return spark.read.format(kind).load(path)
