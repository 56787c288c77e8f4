"""Conversions between tables and streams: methods of `StreamTableEnvironment`.

`derive_schema` reads the field expressions of a stream: `col("a"), col("b").alias("c"), col("t").rowtime`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.base.errors import WrongTypeError
from penstock.base.typeinfo import TypeInformation
from penstock.datastream.data_stream import DataStream, StreamExecutionEnvironment
from penstock.sql.catalogs.columns import Schema
from penstock.sql.connectors.built_in import built_in
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import TimestampType
from penstock.sql.logical.nodes import Node, Write
from penstock.sql.logical.properties import allow_plans
from penstock.sql.parser import syntax
from penstock.sql.session.session import TableSession
from penstock.sql.stream.bridge import RecordTarget
from penstock.sql.stream.executor import StreamExecutor
from penstock.table import stream_conversion
from penstock.table.changelog_mode import ChangelogMode
from penstock.table.plans import to_operand
from penstock.table.table import Table

_TIMES: Final = {"$ROWTIME": "rowtime", "$PROCTIME": "proctime"}
#: the type of a time attribute that `rowtime` creates from record timestamps
ROWTIME_TYPE: Final = TimestampType(3)


@dataclass(frozen=True)
class _Named:
    """A field expression: the referenced field, the name of its column, and the kind of its time attribute, if any."""

    field: str
    name: str
    time: str | None


def derive_schema(
    fields: Sequence[object], records: stream_conversion.RecordType
) -> tuple[Schema, stream_conversion.RecordType]:
    """Return the schema that field expressions declare, and the record type with its fields renamed accordingly.

    The expressions refer to fields by name, in any order, each with an optional alias. If none of them names a field,
    they are new names for the fields by position. `rowtime` creates an event-time attribute from record timestamps, and
    `proctime` a processing-time attribute.

    Raises:
        ValidationError: for any other expression, or more names than fields.
    """
    columns = [_named(field) for field in fields]
    physical = [named for named in columns if named.time is None]
    by_name = any(named.field in records.names for named in physical)
    renamed = _by_name(physical, records) if by_name else _by_place(columns, records)
    builder = Schema.new_builder()
    for column in columns:
        if column.time == "rowtime":
            builder.column_by_metadata(column.name, ROWTIME_TYPE, stream_conversion.ROWTIME).watermark(
                column.name, "SOURCE_WATERMARK()"
            )
        elif column.time is not None:
            builder.column_by_expression(column.name, "PROCTIME()")
        else:
            builder.column(column.name, renamed.of(column.name))
    return builder.build(), renamed


def _by_name(physical: Sequence[_Named], records: stream_conversion.RecordType) -> stream_conversion.RecordType:
    new = {}
    for column in physical:
        records.of(column.field)
        new[column.field] = column.name
    return stream_conversion.RecordType(
        tuple(new.get(name, name) for name in records.names), records.types, records.is_record, records.is_known
    )


def _by_place(columns: Sequence[_Named], records: stream_conversion.RecordType) -> stream_conversion.RecordType:
    """Rename fields by position.

    An event-time attribute may replace a field; other time attributes follow all fields.
    """
    names = list(records.names)
    for index, named in enumerate(columns):
        if index < len(names):
            if named.time == "proctime":
                raise ValidationError(
                    "The proctime attribute can only be appended to the fields of a stream, at the end"
                )
            names[index] = f"${names[index]}" if named.time is not None else named.name
        elif named.time is None:
            raise ValidationError(
                f"The stream has {len(names)} fields, [{', '.join(records.names)}], and none is left for {named.name!r}"
            )
    return stream_conversion.RecordType(tuple(names), records.types, records.is_record, records.is_known)


def _named(field: object) -> _Named:
    operand = to_operand(field)
    node, time = operand._node, None
    if isinstance(node, syntax.Call) and node.name in _TIMES:
        time = _TIMES[node.name]
        (node,) = node.operands
    if not isinstance(node, syntax.Reference):
        raise ValidationError(
            f"the fields of a stream are columns with or without alias, rowtime and proctime, not {operand}"
        )
    name = operand._names[0] if operand._names else node.path[0]
    return _Named(node.path[0], name, time)


class StreamMethods:
    """See the module docstring. The resulting streams are part of the DataStream program, whose `execute` runs them."""

    _session: TableSession
    _streams: StreamExecutionEnvironment
    _table: Callable[..., Table]

    # --- tables of streams -------------------------------------------------------------------------------------------

    def from_data_stream(self, data_stream: DataStream, *fields_or_schema: Any) -> Table:
        """Create a table from a stream whose records are inserts.

        The type of the stream determines the columns: the fields of a ROW, `f0`, `f1` and so on for a TUPLE, and one
        column `f0` for other records. If the stream declares no type, its records are Python objects in one column
        `f0`, unless a schema declares their columns.

        The table has neither timestamps nor watermarks, unless a schema declares them: a metadata column with the key
        `rowtime` contains the timestamps, and `SOURCE_WATERMARK()` adopts the stream's watermarks.

        Args:
            data_stream: the stream.
            fields_or_schema: one `Schema` with additional columns, other types, a watermark and a key. Or expressions,
                one for each field: `col("a")`, `col("a").alias("b")`, `col("t").rowtime`, `col("t").proctime`.

        Raises:
            ValidationError: for a column that the stream does not have.
            TypeError: if `data_stream` is not a stream.

        Examples:
            >>> from penstock.common import Types
            >>> from penstock.table.expressions import col
            >>> pairs = env.from_collection([("tea", 2)], Types.TUPLE([Types.STRING(), Types.INT()]))
            >>> t_env.from_data_stream(pairs, col("drink"), col("cups")).print_schema()
            (
              `drink` STRING,
              `cups` INT NOT NULL
            )
        """
        _check_stream(data_stream)
        given = list(fields_or_schema[0]) if _is_list(fields_or_schema) else list(fields_or_schema)
        calls = self._session.manager.calls()
        if not given or (len(given) == 1 and isinstance(given[0], Schema)):
            schema = given[0] if given else None
            records = stream_conversion.record_type(data_stream.declared_type, schema)
            return self._table(*stream_conversion.plan_stream_table(data_stream.upstreams, records, schema, calls))
        if any(isinstance(argument, Schema) for argument in given):
            raise WrongTypeError("a stream has one Schema, or expressions for its fields, and not both")
        schema, records = derive_schema(given, stream_conversion.record_type(data_stream.declared_type))
        plan, _ = stream_conversion.plan_stream_table(
            data_stream.upstreams, records, schema, calls, rowtime=ROWTIME_TYPE
        )
        return self._table(plan)

    def from_changelog_stream(
        self, data_stream: DataStream, schema: Schema | None = None, changelog_mode: ChangelogMode | None = None
    ) -> Table:
        """Create a table from a stream of changelog rows, each with its kind: `Row.get_row_kind`.

        Args:
            data_stream: a stream of `Row`.
            schema: as for `from_data_stream`.
            changelog_mode: the kinds of rows that may arrive; all by default. Without UPDATE_BEFORE, rows replace each
                other by the primary key that the schema declares.

        Raises:
            ValidationError: for a column that the stream does not have, for declared records other than rows, or for
                updates without a primary key.
            TypeError: if `data_stream` is not a stream.
        """
        _check_stream(data_stream)
        records: stream_conversion.RecordType = stream_conversion.record_type(data_stream.declared_type, schema)
        if not records.is_record:
            raise ValidationError(
                "Changelog streams have rows: give the operator before an output_type of Types.ROW or "
                f"Types.ROW_NAMED, or declare the columns in the schema; this stream has {data_stream.get_type()}"
            )
        mode = changelog_mode or ChangelogMode.all()
        return self._table(
            *stream_conversion.plan_stream_table(
                data_stream.upstreams, records, schema, self._session.manager.calls(), mode
            )
        )

    # --- streams of tables -------------------------------------------------------------------------------------------

    def to_data_stream(self, table: Table) -> DataStream:
        """Convert an append-only table to a stream of `Row` with named fields.

        Watermarks are forwarded, and the table's event-time attribute, if any, becomes the timestamp of each record.

        Raises:
            ValidationError: if the table is not append-only, or has several event-time attributes.

        Examples:
            >>> orders = t_env.from_elements([("tea", 2)], ["drink", "cups"])
            >>> t_env.to_data_stream(orders).map(lambda row: row.drink).collect()
            ['tea']
        """
        return self._stream(stream_conversion.rows_target(_get_plan(table)))

    def to_changelog_stream(
        self, table: Table, target_schema: Schema | None = None, changelog_mode: ChangelogMode | None = None
    ) -> DataStream:
        """Convert the changes of a table to a stream of `Row` with row kinds.

        Args:
            table: the table.
            target_schema: the columns of the rows, by position; a metadata column with the key `rowtime` becomes the
                timestamp of the record; rows replace each other by a primary key.
            changelog_mode: the kinds of rows that the stream accepts; all by default. `upsert` needs a primary key and
                omits UPDATE_BEFORE rows (-U): an update is a +U, and the last change of a removed key is a -D.

        Raises:
            ValidationError: if the table has changes that the stream does not accept, or other columns.
            UnsupportedError: if the primary key is not an upsert key of the query.

        Examples:
            >>> from penstock.table.expressions import col
            >>> total = t_env.from_elements([(2,), (3,)], ["cups"]).select(col("cups").sum.alias("total"))
            >>> changes = t_env.to_changelog_stream(total).collect()
            >>> [str(row) for row in changes]
            ['+I[2]', '-U[2]', '+U[5]']
        """
        calls = self._session.manager.calls()
        return self._stream(stream_conversion.changelog_target(_get_plan(table), target_schema, changelog_mode, calls))

    def to_append_stream(self, table: Table, type_info: TypeInformation) -> DataStream:
        """Convert an append-only table to records of a type: a ROW, a TUPLE, or the type of its only column.

        Raises:
            ValidationError: if the table is not append-only, or its columns do not match the type.
        """
        return self._stream(stream_conversion.append_target(_get_plan(table), type_info, self._session.manager.calls()))

    def to_retract_stream(self, table: Table, type_info: TypeInformation) -> DataStream:
        """Convert the changes of a table to pairs: True and an added record, or False and a retracted one.

        Args:
            table: the table.
            type_info: the type of the records: a ROW, a TUPLE, or the type of the only column.

        Raises:
            ValidationError: if the columns of the table do not match the type.
        """
        return self._stream(
            stream_conversion.retract_target(_get_plan(table), type_info, self._session.manager.calls())
        )

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


def _get_plan(table: object) -> Node:
    if not isinstance(table, Table):
        raise WrongTypeError(f"a stream is made of a table, not of {table!r}")
    return table._plan
