"""`TableEnvironment` methods that create tables from pandas, Arrow, Polars and Spark data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from penstock.base.configuration import Configuration
from penstock.base.errors import WrongTypeError
from penstock.datastream.data_stream import StreamExecutionEnvironment
from penstock.sql.catalogs.columns import Schema
from penstock.sql.session.session import TableSession
from penstock.table.python_rows import RowsSchema, rows_of_arrow, rows_of_pandas
from penstock.table.stream_conversion import frame_type, plan_stream_table, record_type
from penstock.table.table import Table


class FrameMethods:
    """See the module docstring."""

    _session: TableSession
    _table: Callable[..., Table]

    def from_pandas(self, pdf: Any, schema: RowsSchema = None, splits_num: int = 1) -> Table:
        """Create a table from the rows of a pandas data frame.

        Args:
            pdf: the data frame. Its index is ignored.
            schema: a ROW, or the names or types of the columns; None for the columns of the data frame.
            splits_num: the number of splits for parallel reading. It does not change the result, and Penstock splits
                the rows as needed.

        Raises:
            TypeError: if `pdf` is not a data frame, or a column cannot be read as its type.
        """
        if not hasattr(pdf, "columns") or not hasattr(pdf, "index"):
            raise WrongTypeError(f"Unsupported type, expected pandas.DataFrame, got {type(pdf)}")
        return self._table(rows_of_pandas(pdf, schema))

    def from_arrow(self, data: pa.Table | pa.RecordBatch, schema: RowsSchema = None) -> Table:
        """Create a table from the rows of an Arrow table or record batch.

        Args:
            data: the rows.
            schema: a ROW, or the names or types of the columns; None for the columns of the data.

        Raises:
            TypeError: if `data` is neither, or a column cannot be read as its type.
        """
        if isinstance(data, pa.RecordBatch):
            data = pa.Table.from_batches([data])
        if not isinstance(data, pa.Table):
            raise WrongTypeError(f"from_arrow takes a pyarrow.Table or a RecordBatch, not {type(data)}")
        return self._table(rows_of_arrow(data, schema, "Arrow table"))

    def from_polars(self, frame: Any, schema: RowsSchema = None) -> Table:
        """Create a table from the rows of a Polars data frame; a lazy one is collected.

        Args:
            frame: a `polars.DataFrame` or a `LazyFrame`.
            schema: a ROW, or the names or types of the columns; None for the columns of the data frame.

        Raises:
            TypeError: if `frame` is not a Polars data frame, or a column cannot be read as its type.
        """
        collected = frame.collect() if hasattr(frame, "collect") else frame
        if not hasattr(collected, "to_arrow"):
            raise WrongTypeError(f"from_polars takes a polars.DataFrame or a LazyFrame, not {type(frame)}")
        return self._table(rows_of_arrow(collected.to_arrow(), schema, "data frame"))

    def from_dataframe(self, df: Any, schema: Schema | None = None) -> Table:
        """Create a table from the rows of a Spark data frame, or from the rows that arrive in a streaming one.

        The frame is read as in `StreamExecutionEnvironment.from_dataframe`.

        Args:
            df: the data frame.
            schema: further columns, other types, a watermark; None for the columns of the data frame.

        Raises:
            TypeError: if `df` is not a Spark data frame.
            ValidationError: for a column that the data frame lacks.
        """
        if not hasattr(df, "isStreaming"):
            raise WrongTypeError(f"from_dataframe takes a data frame of Spark, not {type(df)}")
        configuration = Configuration()
        for key, value in self._session.config.to_map().items():
            configuration.set_string(key, value)
        streams = StreamExecutionEnvironment.get_execution_environment(configuration)
        records = record_type(frame_type(df))
        return self._table(
            *plan_stream_table(streams.from_dataframe(df).upstreams, records, schema, self._session.manager.calls())
        )
