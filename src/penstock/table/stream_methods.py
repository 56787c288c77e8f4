"""Tables of streams and streams of tables: methods of `StreamTableEnvironment`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.base.errors import WrongTypeError
from penstock.base.typeinfo import TypeInformation
from penstock.datastream.data_stream import DataStream, StreamExecutionEnvironment
from penstock.table.catalog.schema import Schema
from penstock.table.changelog_mode import ChangelogMode
from penstock.table.connectors.built_in import built_in
from penstock.table.data.errors import ValidationError
from penstock.table.plan.levels import allow_plans
from penstock.table.plan.logical import Node, Write
from penstock.table.seams.from_stream import RecordType, record_type, table_of
from penstock.table.seams.to_stream import append_target, changelog_target, retract_target, rows_target
from penstock.table.session.session import TableSession
from penstock.table.stream_fields import ROWTIME_TYPE, schema_of
from penstock.table.streaming.executor import StreamExecutor
from penstock.table.streaming.records.record_target import RecordTarget
from penstock.table.table import Table


class StreamMethods:
    """See the module's text. What becomes a stream is part of the program of streams, whose `execute` runs it."""

    _session: TableSession
    _streams: StreamExecutionEnvironment
    _table: Callable[[Node], Table]

    # --- tables of streams -------------------------------------------------------------------------------------------

    def from_data_stream(self, data_stream: DataStream, *fields_or_schema: Any) -> Table:
        """The table of a stream whose records are new rows.

        The type of the stream says which columns there are: the fields of a ROW, `f0`, `f1` and so on of a TUPLE, and
        one column `f0` for other records. Records whose type the stream does not declare are Python objects in one
        column `f0`, unless a schema says what they are.

        Neither timestamps nor watermarks come into the table, unless a schema declares them: a column by metadata
        `rowtime` has the timestamps, and `SOURCE_WATERMARK()` takes over the watermarks.

        Args:
            data_stream: the stream.
            fields_or_schema: one `Schema`: further columns, other types, watermark and key. Or expressions, one for
                each field: `col("a")`, `col("a").alias("b")`, `col("t").rowtime`, `col("t").proctime`.

        Raises:
            ValidationError: for a column that the stream has not.
            TypeError: if it is no stream.
        """
        _check_stream(data_stream)
        given = list(fields_or_schema[0]) if _is_list(fields_or_schema) else list(fields_or_schema)
        calls = self._session.manager.calls()
        if not given or (len(given) == 1 and isinstance(given[0], Schema)):
            schema = given[0] if given else None
            records = record_type(data_stream.declared_type, schema)
            return self._table(table_of(data_stream.upstreams, records, schema, calls))
        if any(isinstance(one, Schema) for one in given):
            raise WrongTypeError("a stream has one Schema, or expressions for its fields, and not both")
        schema, records = schema_of(given, record_type(data_stream.declared_type))
        return self._table(table_of(data_stream.upstreams, records, schema, calls, rowtime=ROWTIME_TYPE))

    def from_changelog_stream(
        self, data_stream: DataStream, schema: Schema | None = None, changelog_mode: ChangelogMode | None = None
    ) -> Table:
        """The table of a stream whose records are rows that say what they do to it: `Row.get_row_kind`.

        Args:
            data_stream: a stream of `Row`.
            schema: as for `from_data_stream`.
            changelog_mode: which kinds of rows may come; all without one. Where the rows before updates are not among
                them, rows replace others by the primary key that the schema declares.

        Raises:
            ValidationError: for a column that the stream has not, a stream that declares other records than rows, or
                updates without a primary key.
            TypeError: if it is no stream.
        """
        _check_stream(data_stream)
        records: RecordType = record_type(data_stream.declared_type, schema)
        if not records.is_record:
            raise ValidationError(
                "Changelog streams have rows: give the operator before an output_type of Types.ROW or "
                f"Types.ROW_NAMED, or declare the columns in the schema; this stream has {data_stream.get_type()}"
            )
        mode = changelog_mode or ChangelogMode.all()
        return self._table(table_of(data_stream.upstreams, records, schema, self._session.manager.calls(), mode))

    # --- streams of tables -------------------------------------------------------------------------------------------

    def to_data_stream(self, table: Table) -> DataStream:
        """The rows of a table that only grows, as a stream of `Row` with the names of the columns.

        Watermarks go on, and the event time of the table, if it has one, is the timestamp of each record.

        Raises:
            ValidationError: if rows of the table change, or it has several event times.
        """
        return self._stream(rows_target(_plan_of(table)))

    def to_changelog_stream(
        self, table: Table, target_schema: Schema | None = None, changelog_mode: ChangelogMode | None = None
    ) -> DataStream:
        """The changes of a table as a stream of `Row`, each of which says its kind.

        Args:
            table: the table.
            target_schema: the columns of the rows, by their places; a column by metadata `rowtime` becomes the
                timestamp of the record; a primary key, by which rows are replaced.
            changelog_mode: which kinds of rows the stream takes; all without one. `upsert` needs a primary key and
                has no previous rows of updates (-U): an update is a +U, and the last change of a removed key is a -D.

        Raises:
            ValidationError: if the table has changes that the stream does not take, or other columns.
            UnsupportedError: for a primary key by which the query does not tell its rows apart.
        """
        calls = self._session.manager.calls()
        return self._stream(changelog_target(_plan_of(table), target_schema, changelog_mode, calls))

    def to_append_stream(self, table: Table, type_info: TypeInformation) -> DataStream:
        """The rows of a table that only grows, as records of a type: a ROW, a TUPLE, or the type of its one column.

        Raises:
            ValidationError: if rows of the table change, or its columns do not fit the type.
        """
        return self._stream(append_target(_plan_of(table), type_info, self._session.manager.calls()))

    def to_retract_stream(self, table: Table, type_info: TypeInformation) -> DataStream:
        """The changes of a table as pairs: true and a record that comes, or false and one that goes.

        Args:
            table: the table.
            type_info: the records: a ROW, a TUPLE, or the type of the one column.

        Raises:
            ValidationError: if the columns of the table do not fit the type.
        """
        return self._stream(retract_target(_plan_of(table), type_info, self._session.manager.calls()))

    # --- the program of streams --------------------------------------------------------------------------------------

    def _stream(self, target: RecordTarget) -> DataStream:
        session = self._session
        allow_plans([target.plan])
        return _executor().stream(self._streams, target, session.config.to_map(), session.manager.calls().session)

    def _attach(self, plans: Sequence[Write]) -> None:
        session = self._session
        allow_plans(plans)
        _executor().attach(self._streams, plans, session.config.to_map(), session.manager.calls().session)


def _executor() -> StreamExecutor:
    return StreamExecutor(built_in())


def _is_list(given: Sequence[Any]) -> bool:
    return len(given) == 1 and isinstance(given[0], list | tuple)


def _check_stream(stream: object) -> None:
    if not isinstance(stream, DataStream):
        raise WrongTypeError(f"a table is made of a DataStream, not of {stream!r}")


def _plan_of(table: object) -> Node:
    if not isinstance(table, Table):
        raise WrongTypeError(f"a stream is made of a table, not of {table!r}")
    return table._plan
