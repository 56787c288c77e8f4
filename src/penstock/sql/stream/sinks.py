"""Prepares rows for tables: enforces constraints, handles rows that share a primary key, and plans table sinks.

`collect_constraints` finds the constraints that a table's types put on the values of its columns, also within rows and
collections. A constraint is named by a path: the name of the column, followed by field names. Elements of collections
have no names. `ConstraintOperator` enforces them: NULL in NOT NULL columns, and strings and bytes that are too long or
too short.

`Identity` finds the row that a change affects, among rows of a query that share a primary key.

`FirstUpsertOperator` writes one row for each primary key, if the query should not have more: ON CONFLICT DO ERROR and
DO NOTHING. Changes may arrive out of order: a new row may take over the key of a row that is yet to be retracted. So
changes wait until the watermark has passed. Only then are keys with more than one remaining row conflicts. DO ERROR
fails the job; DO NOTHING keeps the first row.

`LastUpsertOperator` writes the last of the query's rows for each primary key: ON CONFLICT DO DEDUPLICATE. When the last
row is retracted, the one before it is written again. When all rows are retracted, the key is deleted.

`written` plans table sinks: which constraints are checked, and what happens to rows that share a primary key. A sink
that writes by key is correct if the query has at most one row per key at any time, that is, if the key's columns
identify the rows of the query. Otherwise several rows of the query share a row of the table, and ON CONFLICT determines
which of them stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.codecs.arrow_columns import get_map_keys
from penstock.codecs.column_data import ColumnData
from penstock.plan.transformation import Upstream
from penstock.runtime.columns import ColumnBatch, as_columns
from penstock.runtime.operators.base import StreamOperator, UserCodeError
from penstock.runtime.records import Batch
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.data.row_data import RowData
from penstock.sql.data.types import (
    LENGTH_MAX,
    ArrayType,
    BinaryType,
    CharType,
    DataType,
    DecimalType,
    MapType,
    MultisetType,
    RowType,
    VarBinaryType,
    VarCharType,
)
from penstock.sql.logical import nodes
from penstock.sql.logical.properties import all_nodes, collect_expressions
from penstock.sql.stream.changelog import deleted_by_key
from penstock.sql.stream.planning.options import LENGTH, NOT_NULL, Optimization, SinkOptions, read_parallelism
from penstock.sql.stream.planning.rule import Factory, Planning, Stream, by_columns, differ_in_parallelism, name_columns
from penstock.sql.stream.planning.upsert_keys import Keys
from penstock.sql.stream.rows.rows import RowEquality, RowKeys, build_columns, pack_kinds, to_canonical_rows
from penstock.sql.stream.rows.state_ttl import ExpiringOperator, lasting
from penstock.sql.tables.tables import TableWriter
from penstock.sql.typed import Constant, FunctionCall

#: steps of a path that are not fields
ELEMENT, KEY, VALUE = -1, -2, -3
_WORDS = {ELEMENT: "[element]", KEY: "[key]", VALUE: "[value]"}


@dataclass(frozen=True, slots=True)
class Constraint:
    """A constraint on a column or on a part of it.

    `path`: the index of the column, followed by indexes of fields or by parts of collections. `type`: NOT NULL or a
    length.
    """

    path: tuple[int, ...]
    name: str
    type: DataType
    is_length: bool

    def holds_in_tuples(self, data: ColumnData) -> bool:
        """Return whether rows that are tuples satisfy the constraint; False in other cases, which kernels decide."""
        if len(self.path) > 1 or not isinstance(data, RowData):
            return False
        index = self.path[0]
        if not self.is_length:
            return all(row[index] is not None for row in data.tuples)
        length: int = self.type.length  # type: ignore[attr-defined]
        lengths = [len(row[index]) for row in data.tuples if row[index] is not None]
        return all(map(length.__eq__ if isinstance(self.type, CharType | BinaryType) else length.__ge__, lengths))


def collect_constraints(schema: nodes.RowSchema, nested: str, length: str) -> tuple[Constraint, ...]:
    """Return the constraints of a table: NOT NULL first, then lengths.

    `nested`: IGNORE for constraints on columns alone, ROWS to include fields of rows, ROWS_AND_COLLECTIONS for all.
    `length`: IGNORE to omit constraints on lengths. Raises `ValidationError` for constraints that cannot be enforced.
    """
    constraints: list[Constraint] = []
    for index, column in enumerate(schema):
        constraints += _constraints((index,), column.name, column.type, nested, length)
    refused = [constraint for constraint in constraints if constraint.is_length and min(constraint.path) < 0]
    if refused and length == "TRIM_PAD":
        raise ValidationError(
            f"Values within collections are neither trimmed nor padded, and '{refused[0].name}' is "
            f"{refused[0].type.nullable()}. Set '{LENGTH}' to 'ERROR' to fail on values of another length."
        )
    return tuple(sorted(constraints, key=lambda constraint: constraint.is_length))


def _constraints(path: tuple[int, ...], name: str, kind: DataType, nested: str, length: str) -> Iterator[Constraint]:
    if not kind.is_nullable:
        yield Constraint(path, name, kind, False)
    has_length = isinstance(kind, CharType | VarCharType | BinaryType | VarBinaryType) and kind.length != LENGTH_MAX
    if has_length and length != "IGNORE":
        yield Constraint(path, name, kind, True)
    for step, word, inner in _parts(kind, nested):
        more = name + _WORDS[step] if step < 0 else f"{name}.{word}"
        yield from _constraints((*path, step), more, inner, nested, length)


def _parts(kind: DataType, nested: str) -> list[tuple[int, str, DataType]]:
    """Return the parts of a type whose constraints are enforced."""
    if isinstance(kind, RowType) and nested != "IGNORE":
        return [(index, field.name, field.data_type) for index, field in enumerate(kind.fields)]
    if nested != "ROWS_AND_COLLECTIONS":
        return []
    if isinstance(kind, MapType):
        return [(KEY, "", kind.key_type), (VALUE, "", kind.value_type)]
    if isinstance(kind, MultisetType):
        return [(KEY, "", kind.element_type)]
    return [(ELEMENT, "", kind.element_type)] if isinstance(kind, ArrayType) else []


class ConstraintOperator(StreamOperator):
    """Enforces constraints. `drops`: whether rows with NULL are dropped; otherwise they fail the job.

    `length`: TRIM_PAD gives values the right length, ERROR fails the job on values of another length.
    """

    def __init__(self, constraints: Sequence[Constraint], drops: bool, length: str) -> None:
        self._constraints = tuple(constraints)
        self._drops = drops
        self._trims = length == "TRIM_PAD"

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Emit the rows that satisfy the constraints."""
        records = as_columns(batch, self.context.operator_name)
        for constraint in self._constraints:
            if constraint.holds_in_tuples(records.data):
                continue
            column = records.data.column(constraint.path[0])
            if constraint.is_length:
                records = self._of_length(constraint, records, column)
                continue
            part, rows = reached(column, constraint.path[1:])
            if not part.null_count:
                continue
            bad = part.is_null().to_numpy(zero_copy_only=False)
            if not self._drops:
                self._fail(
                    f"Column '{constraint.name}' is NOT NULL, however, a null value is being written into it. You can "
                    "set job "
                    f"configuration '{NOT_NULL}'='DROP' to suppress this exception and drop such records silently."
                )
            keeps = np.ones(len(records), np.bool_)
            keeps[rows[bad]] = False
            records = records.where(keeps)
        if len(records):
            self.output.collect(records)

    def _of_length(self, constraint: Constraint, records: ColumnBatch, column: pa.Array) -> ColumnBatch:
        part, _ = reached(column, constraint.path[1:])
        lengths = compute_lengths(part)
        declared_length: int = constraint.type.length  # type: ignore[attr-defined]
        is_exact = isinstance(constraint.type, CharType | BinaryType)
        bad = pc.fill_null((pc.not_equal if is_exact else pc.greater)(lengths, declared_length), False)
        if not bad.true_count:
            return records
        if self._trims:
            index = constraint.path[0]
            fitted = _fitted_within(column, constraint.path[1:], declared_length, is_exact)
            return ColumnBatch(
                records.columns.set_column(index, records.columns.schema.names[index], fitted),
                records.rowtimes,
                records.kinds,
            )
        actual_length = lengths.filter(bad)[0].as_py()
        self._fail(
            f"Column '{constraint.name}' is {constraint.type.nullable()}, however, a string of length {actual_length} "
            "is being written into "
            f"it. You can set job configuration '{LENGTH}' to control this behaviour."
        )
        return records

    def _fail(self, message: str) -> None:
        raise UserCodeError(self.context.operator_name, None) from TableRuntimeError(message)


def reached(column: pa.Array, path: Sequence[int]) -> tuple[pa.Array, Any]:
    """Return the values at a path, without the ones whose parent is NULL, and the row of each as a NumPy array."""
    rows = np.arange(len(column))
    for step in path:
        if column.null_count:
            valid = column.is_valid()
            rows = rows[valid.to_numpy(zero_copy_only=False)]
            column = column.filter(valid)
        if step >= 0:
            column = column.field(step) if column.offset == 0 else column.flatten()[step]
            continue
        offsets = column.offsets.to_numpy()
        rows = np.repeat(rows, np.diff(offsets))
        inner = get_map_keys(column) if step == KEY else column.items if step == VALUE else column.values
        column = inner.slice(offsets[0], offsets[-1] - offsets[0])
    return column, rows


def compute_lengths(column: pa.Array) -> pa.Array:
    """Return the number of characters or bytes of each value."""
    return (pc.utf8_length if pa.types.is_string(column.type) else pc.binary_length)(column)


def _fitted_within(column: pa.Array, path: Sequence[int], length: int, is_padded: bool) -> pa.Array:
    """Trim and pad the field at a path in a column, or the column itself if the path is empty."""
    if not path:
        return _fitted(column, length, is_padded)
    fields = column.flatten()
    fields[path[0]] = _fitted_within(fields[path[0]], path[1:], length, is_padded)
    return pa.StructArray.from_arrays(fields, fields=list(column.type), mask=column.is_null())


def _fitted(column: pa.Array, length: int, is_padded: bool) -> pa.Array:
    """Trim values to a length. If `is_padded`, pad them to it with blanks or zeros."""
    if pa.types.is_string(column.type):
        cut = pc.utf8_slice_codeunits(column, 0, length)
        return pc.utf8_rpad(cut, length, " ") if is_padded else cut
    cut = pc.binary_slice(column, 0, length)
    if not is_padded:
        return cut
    return pa.array([None if value is None else value.ljust(length, b"\0") for value in cut.to_pylist()], column.type)


Row = tuple[Any, ...]


class Identity:
    """Compares rows by the columns at `indices`, or by all columns if it is None.

    Rows are in canonical form (`to_canonical_rows`), but state of an earlier release may have others. `types`: of
    all columns.
    """

    def __init__(self, indices: Sequence[int] | None, types: Sequence[DataType]) -> None:
        self._places = None if indices is None else tuple(indices)
        self._equality = RowEquality(types if indices is None else [types[index] for index in indices])

    @property
    def is_known(self) -> bool:
        """Whether there are such columns. Then a row replaces the one with the same values in them."""
        return self._places is not None

    def of(self, row: Row) -> Row:
        """Return the values that identify a row."""
        return row if self._places is None else tuple([row[index] for index in self._places])

    def find(self, rows: Sequence[Row], row: Row) -> int | None:
        """Return the index of the row that a change affects: the last of equal ones, or None if not found."""
        identity = self.of(row)
        for index in range(len(rows) - 1, -1, -1):
            if self._equality.same(self.of(rows[index]), identity):
                return index
        return None


def sent_batch(sent: Sequence[tuple[int, Row]], types: Sequence[DataType], names: Sequence[str]) -> ColumnBatch:
    """Build a batch from kinds and rows."""
    columns = build_columns([row for _, row in sent], types)
    return ColumnBatch(pa.RecordBatch.from_arrays(columns, list(names)), None, pack_kinds([kind for kind, _ in sent]))


#: The states: primary key -> the written row; primary key -> pending changes, as (whether it is an insert, row).
WRITTEN: Final = "written"
WAITING: Final = "waiting"


class FirstUpsertOperator(StreamOperator):
    """See the module docstring.

    Args:
        key: the indexes of the primary key columns.
        own: the indexes of the columns that identify the rows of the query; None if only all columns do.
        types: the types of all columns.
        names: the names of all columns.
        key_names: the names of the key columns in the table.
        fails: whether a conflict fails the job.
    """

    is_keyed = True

    def __init__(
        self,
        key: Sequence[int],
        own: Sequence[int] | None,
        types: Sequence[DataType],
        names: Sequence[str],
        key_names: Sequence[str],
        fails: bool,
    ) -> None:
        self._keys = RowKeys(key)
        self._identity = Identity(own, types)
        self._types = tuple(types)
        self._names = list(names)
        self._key_names = tuple(key_names)
        self._fails = fails

    def open(self) -> None:
        """Look up the states."""
        written, waiting = self.context.keyed.table(WRITTEN), self.context.keyed.table(WAITING)
        self._written, self._mark_written = written.entries(None), written.mark
        self._waiting, self._mark_waiting = waiting.entries(None), waiting.mark

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Keep changes until the watermark has passed."""
        records = as_columns(batch, self.context.operator_name)
        keys, kinds = self._keys.of(records.columns), records.kinds
        for index, (key, row) in enumerate(
            zip(keys, to_canonical_rows(records.columns.columns, self._types, len(records)), strict=True)
        ):
            comes = kinds is None or kinds[index] not in (nodes.UPDATE_BEFORE, nodes.DELETE)
            self._waiting.setdefault(key, []).append((comes, row))
        self._mark_waiting(None, set(keys))

    def process_watermark(self, timestamp: int) -> None:
        """Apply the pending changes."""
        keys = list(self._waiting)
        sent: list[tuple[int, Row]] = []
        for key in keys:
            self._settle(key, self._waiting.pop(key), sent)
        self._mark_waiting(None, keys)
        self._mark_written(None, keys)
        if sent:
            self.output.collect(sent_batch(sent, self._types, self._names))
        super().process_watermark(timestamp)

    def _settle(self, key: Any, changes: list[tuple[bool, Row]], sent: list[tuple[int, Row]]) -> None:
        before = self._written.get(key)
        left = self._left([] if before is None else [before], changes)
        if self._fails and len({self._identity.of(row) for row in left}) > 1:
            values = [left[0][index] for index in self._keys.places]
            key_text = ", ".join(f"'{name}'={value}" for name, value in zip(self._key_names, values, strict=True))
            raise UserCodeError(self.context.operator_name, None) from TableRuntimeError(
                f"Primary key constraint violation: {len(left)} rows of the query have the primary key [{key_text}], "
                "and "
                "ON CONFLICT DO ERROR takes one. ON CONFLICT DO NOTHING keeps the first of them, and ON CONFLICT DO "
                "DEDUPLICATE the last one."
            )
        if not left:
            if before is not None:
                sent.append((nodes.DELETE, before))
                del self._written[key]
        elif left[0] != before:
            sent.append((nodes.INSERT if before is None else nodes.UPDATE_AFTER, left[0]))
            self._written[key] = left[0]

    def _left(self, rows: list[Row], changes: list[tuple[bool, Row]]) -> list[Row]:
        """Return the rows that remain after changes. A retraction may precede its row."""
        missing: list[Row] = []
        for comes, row in changes:
            if comes:
                missing_index = self._identity.find(missing, row) if not self._identity.is_known else None
                if missing_index is not None:
                    missing.pop(missing_index)
                    continue
                at = self._identity.find(rows, row) if self._identity.is_known else None
                if at is None:
                    rows.append(row)
                else:
                    rows[at] = row
                continue
            at = self._identity.find(rows, row)
            if at is None:
                missing.append(row)
            elif rows[at] == row or not self._identity.is_known:
                rows.pop(at)
        return rows


#: State: primary key -> the rows of the query, in arrival order.
ROWS: Final = "rows"


class LastUpsertOperator(ExpiringOperator):
    """See the module docstring.

    Args:
        key: the indexes of the primary key columns.
        own: the indexes of the columns that identify the rows of the query; None if only all columns do.
        types: the types of all columns.
        names: the names of all columns.
    """

    def __init__(
        self, key: Sequence[int], own: Sequence[int] | None, types: Sequence[DataType], names: Sequence[str]
    ) -> None:
        self._keys = RowKeys(key)
        self._identity = Identity(own, types)
        self._types = tuple(types)
        self._names = list(names)

    def open(self) -> None:
        """Look up the state."""
        table = self.context.keyed.table(ROWS)
        self._rows, self._mark = table.entries(None), table.mark
        self._expire(self._rows, table.mark)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Process changes and emit the rows to write."""
        records = as_columns(batch, self.context.operator_name)
        keys, kinds = self._keys.of(records.columns), records.kinds
        distinct = set(keys)
        self._look(distinct)
        rows = to_canonical_rows(records.columns.columns, self._types, len(records))
        sent: list[tuple[int, tuple[Any, ...]]] = []
        for index, (key, row) in enumerate(zip(keys, rows, strict=True)):
            kind = nodes.INSERT if kinds is None else kinds[index]
            key_rows = self._rows.setdefault(key, [])
            if kind in (nodes.UPDATE_BEFORE, nodes.DELETE):
                self._remove(key_rows, row, sent)
            else:
                sent.append((nodes.UPDATE_AFTER if key_rows else nodes.INSERT, row))
                at = self._identity.find(key_rows, row) if self._identity.is_known else None
                if at is None:
                    key_rows.append(row)
                else:
                    key_rows[at] = row
            if not key_rows:
                del self._rows[key]
        self._mark(None, distinct)
        self._written([key for key in distinct if key in self._rows])
        if sent:
            self.output.collect(sent_batch(sent, self._types, self._names))

    def _remove(
        self, key_rows: list[tuple[Any, ...]], row: tuple[Any, ...], sent: list[tuple[int, tuple[Any, ...]]]
    ) -> None:
        at = self._identity.find(key_rows, row)
        if at is None:
            return
        removed = key_rows.pop(at)
        if not key_rows:
            sent.append((nodes.DELETE, removed))
        elif at == len(key_rows):
            sent.append((nodes.UPDATE_AFTER, key_rows[-1]))


def written(write: nodes.Write, writer: TableWriter, planning: Planning) -> tuple[Upstream, ...]:
    """Return the columns to write to a table. Raises `ValidationError` for changes that the sink does not accept."""
    title, options = ".".join(write.path), planning.options.sinks
    node, key = write.input, write.key
    changes = planning.changes(node)
    planning.accept(f"Table sink '{title}'", node, writer.accepts)
    materialize = _materialize(write, writer, options, planning)
    keys = planning.upsert_keys.of(node)
    deletes_by_key = writer.deletes_by_key and planning.options.allows(Optimization.KEYED_DELETIONS)
    if deletes_by_key and not materialize and frozenset(key) in keys:
        planning.by_key = deleted_by_key(node, planning)
    # A row may move to another primary key if the query replaces rows by other columns, or by only some columns of the
    # key. Then the sink needs UPDATE_BEFORE.
    is_by_other_key = bool(key) and frozenset(key) not in keys
    wants_before = (writer.wants_before or is_by_other_key) and nodes.Changes.UPDATE in changes
    stream = checked(planning.stream(node, wants_before), write.schema, planning)
    if materialize:
        own = min(map(sorted, keys), key=len, default=None)
        stream = replace(stream, upstreams=_materialized(write, stream, own, planning))
    if key and _goes_by_key(write, stream, options, materialize):
        return tuple(by_columns(stream, key))
    return stream.upstreams


def _goes_by_key(write: nodes.Write, stream: Stream, options: SinkOptions, is_materialized: bool) -> bool:
    """Return whether rows are partitioned by the primary key for the sink's subtasks.

    With AUTO they are if rows would otherwise be distributed round-robin, such as from one subtask to several: then an
    older row of a key could be written after a newer one.
    """
    if options.shuffle != "AUTO":
        return options.shuffle == "FORCE" and not is_materialized
    parallelism = read_parallelism(write)
    if parallelism is not None:
        return parallelism > 1
    return stream.changes == nodes.INSERTS and differ_in_parallelism(stream.upstreams)


def may_overflow(query: nodes.Node) -> bool:
    """Return whether a NOT NULL column of a query may be NULL because a decimal has too many digits for its type."""
    if not any(isinstance(column.type, DecimalType) and not column.type.is_nullable for column in query.schema):
        return False
    expressions = [
        part for node in all_nodes(query) for expression in collect_expressions(node) for part in expression.walk()
    ]
    return any(
        isinstance(part.type, DecimalType)
        and (isinstance(part, FunctionCall) or (isinstance(part, Constant) and part.value is None))
        for part in expressions
    )


def checked(stream: Stream, schema: nodes.RowSchema, planning: Planning) -> Stream:
    """Return a stream whose values satisfy the constraints of the columns that they are written to."""
    options = planning.options.sinks
    checks = collect_constraints(schema, options.nested, options.length)
    if not checks:
        return stream
    operator = partial(ConstraintOperator, checks, options.drops_null, options.length)
    upstreams = planning.step("Constraint Enforcer", operator, stream.upstreams, stream.changes != nodes.INSERTS)
    return Stream(upstreams, stream.schema, stream.changes, stream.has_before)


def _materialized(
    write: nodes.Write, stream: Stream, own: list[int] | None, planning: Planning
) -> tuple[Upstream, ...]:
    common = (write.key, own, write.input.schema.types, name_columns(write.input.schema))
    operator: Factory
    if write.conflict in ("ERROR", "NOTHING"):
        names = [write.schema[index].name for index in write.key]
        operator = partial(FirstUpsertOperator, *common, names, write.conflict == "ERROR")
    else:
        operator = lasting(partial(LastUpsertOperator, *common), planning.options.state_ttl_ms)
    inputs = by_columns(stream, write.key)
    return planning.step("Sink Materializer", operator, inputs, is_stateful=True)


def _materialize(write: nodes.Write, writer: TableWriter, options: SinkOptions, planning: Planning) -> bool:
    """Return whether a step determines which of the rows of a key is written."""
    title = ".".join(write.path)
    changes = planning.changes(write.input)
    is_append = writer.accepts == nodes.INSERTS or (writer.follows_query and changes == nodes.INSERTS)
    is_retract = writer.wants_before and not writer.takes_either
    if write.conflict is not None:
        _check_conflict(write, is_append, is_retract, writer)
    if not write.key or is_append or is_retract:
        return False
    if options.materialize != "AUTO":
        return options.materialize == "FORCE"
    if changes == nodes.INSERTS and write.conflict == "DEDUPLICATE":
        return False
    keys = planning.upsert_keys.of(write.input)
    if any(key <= set(write.key) for key in keys):
        return False
    if write.conflict is None and options.requires_on_conflict:
        names = write.input.schema.names
        actual = " or ".join(sorted(f"[{', '.join(names[index] for index in sorted(key))}]" for key in keys)) or "none"
        raise ValidationError(
            f"The query has an upsert key that differs from the primary key of the sink table '{title}'. Primary key: "
            f"[{', '.join(write.schema.names[index] for index in write.key)}], upsert key: {actual}. This can lead to "
            "non-deterministic results when multiple records with different upsert keys map to the same primary key. "
            "Please specify an ON CONFLICT clause to define how conflicts should be handled: ON CONFLICT DO "
            "DEDUPLICATE (update to the latest record, state intensive, since we need to keep the entire history), or "
            "ON CONFLICT DO ERROR (fail on conflict), or ON CONFLICT DO NOTHING (keep first record). "
            f"{_cheap_remedies(write, keys)}"
        )
    return True


def _cheap_remedies(write: nodes.Write, keys: Keys) -> str:
    """Return advice on avoiding conflicts without keeping all rows in state."""
    names, key = write.schema.names, [write.schema.names[index] for index in write.key]
    remedies = []
    own = min(map(sorted, keys), key=len, default=None)
    if own is not None:
        declared = ", ".join(names[index] for index in own)
        remedies.append(f"declare PRIMARY KEY ({declared}) NOT ENFORCED on the table, by which the query's rows differ")
    remedies.append(f"let the query have one row for each ({', '.join(key)}), such as by GROUP BY")
    remedies.append(
        "if you know that it has, set 'table.exec.sink.upsert-materialize' = 'NONE', which writes rows as they come"
    )
    return f"Remedies that keep no state: {'; '.join(remedies)}."


def _check_conflict(write: nodes.Write, is_append: bool, is_retract: bool, writer: TableWriter) -> None:
    """Raise `ValidationError` if ON CONFLICT is not allowed, by the rules of Flink 2.3."""
    title = ".".join(write.path)
    # A table that accepts any changes also accepts the clause without a key, where it has no effect.
    lacks_key = not write.key and not writer.follows_query
    if is_append or is_retract or lacks_key:
        if is_append:
            reason = "it only accepts INSERT (append-only) changes"
        else:
            reason = "it requires UPDATE_BEFORE (retract mode)" if is_retract else "it has no primary key"
        raise ValidationError(
            f"ON CONFLICT clause is only allowed for upsert sinks. The sink '{title}' is not an upsert sink because "
            f"{reason}."
        )
    missing = [] if write.conflict == "DEDUPLICATE" else sorted(set(_without_watermarks(write.input)))
    if missing:
        raise ValidationError(
            f"ON CONFLICT DO {write.conflict} requires all source tables to define watermarks, but the following "
            f"source(s) do not: {', '.join(missing)}. Please add a WATERMARK declaration to these tables."
        )


def _without_watermarks(node: nodes.Node) -> list[str]:
    if isinstance(node, nodes.Scan):
        return [".".join(node.path)]
    if isinstance(node, nodes.WatermarkAssigner):
        return []
    return [title for part in node.inputs() for title in _without_watermarks(part)]
