"""Tables of data that is there: pandas, Arrow, Polars and Spark. Methods of `TableEnvironment`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from penstock.base.configuration import Configuration
from penstock.base.errors import WrongTypeError
from penstock.datastream.data_stream import StreamExecutionEnvironment
from penstock.table.catalog.schema import Schema
from penstock.table.plan.logical import Node
from penstock.table.python_rows import RowsSchema, rows_of_arrow, rows_of_pandas
from penstock.table.seams.from_stream import record_type, table_of
from penstock.table.seams.spark_frames import frame_type
from penstock.table.session.session import TableSession
from penstock.table.table import Table


class FrameMethods:
    """See the module's text."""

    _session: TableSession
    _table: Callable[[Node], Table]

    def from_pandas(self, pdf: Any, schema: RowsSchema = None, splits_num: int = 1) -> Table:
        """A table of the rows of a pandas data frame.

        Args:
            pdf: the data frame. Its index is left out.
            schema: a ROW, names or types of the columns; None for those of the data frame.
            splits_num: into how many parts the rows are cut when they are read in parallel. It does not change the
                result, and Penstock cuts as it needs.

        Raises:
            TypeError: if it is no data frame, or a column cannot be read as its type.
        """
        if not hasattr(pdf, "columns") or not hasattr(pdf, "index"):
            raise WrongTypeError(f"Unsupported type, expected pandas.DataFrame, got {type(pdf)}")
        return self._table(rows_of_pandas(pdf, schema))

    def from_arrow(self, data: pa.Table | pa.RecordBatch, schema: RowsSchema = None) -> Table:
        """A table of the rows of an Arrow table or record batch.

        Args:
            data: the rows.
            schema: a ROW, names or types of the columns; None for those of the data.

        Raises:
            TypeError: if it is neither, or a column cannot be read as its type.
        """
        if isinstance(data, pa.RecordBatch):
            data = pa.Table.from_batches([data])
        if not isinstance(data, pa.Table):
            raise WrongTypeError(f"from_arrow takes a pyarrow.Table or a RecordBatch, not {type(data)}")
        return self._table(rows_of_arrow(data, schema, "Arrow table"))

    def from_polars(self, frame: Any, schema: RowsSchema = None) -> Table:
        """A table of the rows of a Polars data frame; a lazy one is collected.

        Args:
            frame: a `polars.DataFrame` or a `LazyFrame`.
            schema: a ROW, names or types of the columns; None for those of the data frame.

        Raises:
            TypeError: if it is no data frame of Polars, or a column cannot be read as its type.
        """
        collected = frame.collect() if hasattr(frame, "collect") else frame
        if not hasattr(collected, "to_arrow"):
            raise WrongTypeError(f"from_polars takes a polars.DataFrame or a LazyFrame, not {type(frame)}")
        return self._table(rows_of_arrow(collected.to_arrow(), schema, "data frame"))

    def from_dataframe(self, df: Any, schema: Schema | None = None) -> Table:
        """A table of the rows of a Spark data frame, or of those that arrive in a streaming one.

        The frame is read as `StreamExecutionEnvironment.from_dataframe` reads it.

        Args:
            df: the data frame.
            schema: further columns, other types, a watermark; None for the columns of the data frame.

        Raises:
            TypeError: if it is no data frame of Spark.
            ValidationError: for a column that the data frame has not.
        """
        if not hasattr(df, "isStreaming"):
            raise WrongTypeError(f"from_dataframe takes a data frame of Spark, not {type(df)}")
        configuration = Configuration()
        for key, value in self._session.config.to_map().items():
            configuration.set_string(key, value)
        streams = StreamExecutionEnvironment.get_execution_environment(configuration)
        records = record_type(frame_type(df))
        return self._table(
            table_of(streams.from_dataframe(df).upstreams, records, schema, self._session.manager.calls())
        )
