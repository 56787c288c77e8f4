"""The `spark` connector: a table registered in Spark, or files that Spark reads. Batch jobs read it in place."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from penstock.base.config_options import ConfigOptions
from penstock.table.connectors.connector import TableConnector
from penstock.table.connectors.table_options import TableOptions
from penstock.table.connectors.tables import TableReader
from penstock.table.data.errors import ValidationError
from penstock.table.plan.logical import Scan

TABLE: Final = (
    ConfigOptions.key("table")
    .string_type()
    .no_default_value()
    .with_description("The name of a table or view in the Spark session.")
)
PATH: Final = ConfigOptions.key("path").string_type().no_default_value().with_description("The path of files.")
FORMAT: Final = (
    ConfigOptions.key("format")
    .string_type()
    .default_value("parquet")
    .with_description("Spark's name of the files' format.")
)


class SparkConnector(TableConnector):
    """See the module docstring. Takes either `table` or `path`. Columns are matched by position."""

    name = "spark"
    optional_options = (TABLE, PATH, FORMAT)

    def reader(self, scan: Scan, options: TableOptions) -> TableReader:
        """Return a reader of a data frame, for batch jobs only."""
        table, path = options.read(TABLE), options.read(PATH)
        if table is not None and path is None:
            return TableReader(None, frame=partial(_table, table), spark_table=table)
        if path is not None and table is None:
            return TableReader(None, frame=partial(_files, path, options.read(FORMAT)))
        raise ValidationError(f"connector 'spark' of table {options.title} takes one of the options 'table' and 'path'")


def _table(name: str, spark: Any) -> Any:
    return spark.table(name)


def _files(path: str, kind: str, spark: Any) -> Any:
    return spark.read.format(kind).load(path)
