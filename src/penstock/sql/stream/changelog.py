"""Changelogs: kinds of rows, upserts as changes, and tables that read and write them.

`ToChangelogOperator` and `FromChangelogOperator` convert row kinds to a column of codes, and back. No state is needed:
each row is self-contained. Their rules plan TO_CHANGELOG and FROM_CHANGELOG: the changes that they emit and require.

`DropUpdateBeforeOperator` drops the previous rows of updates (UPDATE_BEFORE), for consumers that do not need them.

`ChangelogNormalizeOperator` turns upserts into a changelog: it keeps the last row of each key, so that updates can
include the previous row.

`ReplicateOperator` repeats each row as often as its last column says, for INTERSECT ALL and EXCEPT ALL.

`NormalizeRule` normalizes the changes of tables and DataStreams that are updated by key: a step finds the row that a
change affects. The step is above each table that is updated by key, after its watermarks. It is left out if no consumer
needs UPDATE_BEFORE or the columns of deleted rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.runtime.columns import ColumnBatch, as_columns
from penstock.runtime.operators.base import StreamOperator, UserCodeError
from penstock.runtime.records import Batch
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.data.types import DataType
from penstock.sql.expressions.columns import Columns
from penstock.sql.expressions.evaluator import Evaluator, is_stable
from penstock.sql.logical.nodes import (
    ALL,
    DELETE,
    INSERT,
    INSERTS,
    NAMES,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    ChangelogNormalize,
    Changes,
    Filter,
    FromChangelog,
    Join,
    JoinType,
    Node,
    Project,
    Scan,
    StreamRows,
    ToChangelog,
    WatermarkAssigner,
)
from penstock.sql.logical.properties import with_inputs
from penstock.sql.stream.planning.rule import Planning, Rule, Stream, by_columns, name_columns
from penstock.sql.stream.rows.rows import RowEquality, RowKeys, build_batch, pack_kinds, to_tuples
from penstock.sql.stream.rows.state_ttl import EvaluatingOperator, ExpiringOperator, StreamSession, lasting
from penstock.sql.tables.tables import TableReader
from penstock.sql.typed import Field, Typed


class ToChangelogOperator(StreamOperator):
    """Emits all changes as inserts with the codes of their kinds.

    Args:
        columns: the indexes of the input columns, in output order; the first `before` ones precede the code.
        before: the number of columns before the code.
        codes: kind byte -> code; rows of other kinds are dropped.
        names: the names of the output columns.
    """

    def __init__(self, columns: Sequence[int], before: int, codes: Mapping[int, str], names: Sequence[str]) -> None:
        self._columns = tuple(columns)
        self._before = before
        self._codes = dict(codes)
        self._names = list(names)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Insert the column of codes."""
        records = as_columns(batch, self.context.operator_name)
        kinds = np.frombuffer(records.kinds or bytes(len(records)), np.uint8)
        is_sent = np.isin(kinds, list(self._codes))
        if not is_sent.all():
            records, kinds = records.where(is_sent), kinds[is_sent]
        if not len(records):
            return
        texts = pa.array([self._codes.get(kind) for kind in range(4)], pa.string())
        arrays = [records.columns.column(index) for index in self._columns]
        arrays.insert(self._before, texts.take(pa.array(kinds)))
        self.output.collect(ColumnBatch(pa.RecordBatch.from_arrays(arrays, self._names), records.rowtimes))


class FromChangelogOperator(StreamOperator):
    """Emits inserts as the changes that their codes denote. An unknown code fails the job.

    Args:
        operation: the index of the column with the codes.
        codes: code -> kind byte.
        columns: the input indexes of the output columns.
        names: the names of the output columns.
    """

    def __init__(self, operation: int, codes: Mapping[str, int], columns: Sequence[int], names: Sequence[str]) -> None:
        self._operation = operation
        self._codes = dict(codes)
        self._columns = tuple(columns)
        self._names = list(names)

    def open(self) -> None:
        """Build the arrays for the lookup."""
        self._texts = pa.array(list(self._codes), pa.string())
        self._kinds = np.array(list(self._codes.values()), np.uint8)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Look up the codes."""
        records = as_columns(batch, self.context.operator_name)
        operations = records.columns.column(self._operation)
        code_indices = pc.index_in(operations.cast(pa.string()), value_set=self._texts)
        if code_indices.null_count:
            row = code_indices.is_null().to_pylist().index(True)
            raise UserCodeError(self.context.operator_name, f"a batch of {len(records)} rows") from TableRuntimeError(
                f"Received invalid op code '{operations[row].as_py()}'. Valid op codes are: {list(self._codes)}."
            )
        kinds = self._kinds[code_indices.to_numpy(zero_copy_only=False)].tobytes()
        arrays = [records.columns.column(index) for index in self._columns] or [pa.nulls(len(records))]
        columns = pa.RecordBatch.from_arrays(arrays, self._names or ["c0"])
        self.output.collect(ColumnBatch(columns, records.rowtimes, pack_kinds(kinds)))


class DropUpdateBeforeOperator(StreamOperator):
    """See the module docstring."""

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Emit all other changes."""
        records = as_columns(batch, self.context.operator_name)
        if records.kinds is not None and UPDATE_BEFORE in records.kinds:
            records = records.where(np.frombuffer(records.kinds, np.uint8) != UPDATE_BEFORE)
        if len(records):
            self.output.collect(records)


#: State: key -> values of its row.
ROWS: Final = "rows"


class ChangelogNormalizeOperator(ExpiringOperator, EvaluatingOperator):
    """Takes upserts, and deletions that may have only the key. Emits inserts, updates and deletes of whole rows.

    An unchanged row emits nothing, nor does the deletion of an unknown key. If state expires, unchanged rows are
    emitted again to keep downstream state alive. Rows that do not satisfy the condition are not kept: such a row
    deletes the previous one of its key.

    Args:
        keys: the indexes of the key columns.
        types: the types of all columns.
        names: the names of all columns.
        sends_before: whether updates include the previous row (UPDATE_BEFORE).
        condition: a condition over all columns; None for all rows.
    """

    def __init__(
        self,
        keys: Sequence[int],
        types: Sequence[DataType],
        names: Sequence[str],
        sends_before: bool,
        condition: Typed | None = None,
        session: StreamSession | None = None,
    ) -> None:
        self._keys = RowKeys(keys)
        self._types = tuple(types)
        self._equality = RowEquality(types)
        self._names = list(names)
        self._sends_before = sends_before
        self._condition = condition
        self._session = session or StreamSession()
        self._watermark: int | None = None

    def open(self) -> None:
        """Look up the state."""
        session = self.running(self._session, lambda: self._watermark)
        self._where = None if self._condition is None else Evaluator([self._condition], session)
        table = self.context.keyed.table(ROWS)
        self._rows, self._mark = table.entries(None), table.mark
        self._expire(self._rows, table.mark)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Compare each row with the last one of its key."""
        records = as_columns(batch, self.context.operator_name)
        keys = self._keys.of(records.columns)
        distinct = set(keys)
        self._look(distinct)
        last_rows, kinds, passes = self._rows, records.kinds, self._passes(records)
        output_rows: list[tuple[Any, ...]] = []
        output_kinds = bytearray()
        for row, (key, values) in enumerate(zip(keys, to_tuples(records, self._types), strict=True)):
            kind = INSERT if kinds is None else kinds[row]
            before = last_rows.get(key)
            goes = kind == DELETE or (passes is not None and not passes[row])
            if kind == UPDATE_BEFORE or goes:
                if before is not None and kind != UPDATE_BEFORE:
                    output_rows.append(before)
                    output_kinds.append(DELETE)
                    del last_rows[key]
                continue
            if before is not None and not self.ttl_ms and self._equality.same(before, values):
                continue
            if before is not None and self._sends_before:
                output_rows.append(before)
                output_kinds.append(UPDATE_BEFORE)
            output_rows.append(values)
            output_kinds.append(INSERT if before is None else UPDATE_AFTER)
            last_rows[key] = values
        self._mark(None, distinct)
        self._written([key for key in distinct if key in last_rows])
        if output_rows:
            self.output.collect(build_batch(output_rows, self._types, self._names, kinds=output_kinds))

    def _passes(self, records: ColumnBatch) -> list[bool] | None:
        """Return which rows satisfy the condition; None for all."""
        if self._where is None:
            return None
        try:
            (answers,) = self._where(Columns.of(records.columns))
        except TableRuntimeError as error:
            raise UserCodeError(self.context.operator_name, f"a batch of {len(records)} rows") from error
        return answers.to_pylist()  # type: ignore[no-any-return]

    def resume_event_time(self, watermark: int) -> None:
        """Do nothing: as in Flink, CURRENT_WATERMARK is NULL after a restart until the next watermark."""

    def process_watermark(self, timestamp: int) -> None:
        """Record the watermark for CURRENT_WATERMARK."""
        self._watermark = timestamp
        super().process_watermark(timestamp)


class ReplicateOperator(StreamOperator):
    """See the module docstring. `names`: the names of the output columns, without the last one."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Repeat each row."""
        records = as_columns(batch, self.context.operator_name)
        *columns, times = records.columns.columns
        counts = times.to_numpy(zero_copy_only=False)
        rows = ColumnBatch(pa.RecordBatch.from_arrays(columns, self._names), records.rowtimes, records.kinds)
        repeated = np.repeat(np.arange(len(records)), counts)
        if len(repeated):
            self.output.collect(rows.take(repeated))


class ToChangelogRule(Rule[ToChangelog]):
    """Converts all changes to append-only rows."""

    nodes = (ToChangelog,)

    def changes(self, node: ToChangelog, planning: Planning) -> Changes:
        """See `Rule`."""
        planning.changes(node.input)
        return INSERTS

    def asks_before(self, node: ToChangelog, planning: Planning, wants_before: bool) -> bool:
        """Require UPDATE_BEFORE if the mapping has a code for it."""
        return planning.updates(node.input) and "UPDATE_BEFORE" in dict(node.codes)

    def stream(self, node: ToChangelog, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        inner = planning.stream(node.input, self.asks_before(node, planning, wants_before))
        other_columns = [index for index in range(len(node.input.schema)) if index not in node.partition]
        columns = (*node.partition, *other_columns)
        named = dict(node.codes)
        # A -U that arrives although the mapping has no code for it may be the last change of its row: a deletion.
        if "DELETE" in named:
            named.setdefault("UPDATE_BEFORE", named["DELETE"])
        codes = {NAMES.index(change): code for change, code in named.items()}
        operator = partial(ToChangelogOperator, columns, len(node.partition), codes, name_columns(node.schema))
        inputs = by_columns(inner, node.partition) if node.partition else inner.upstreams
        return Stream(planning.step("To Changelog", operator, inputs, True), node.schema, INSERTS, False)


class FromChangelogRule(Rule[FromChangelog]):
    """Converts append-only rows to changes."""

    nodes = (FromChangelog,)

    def changes(self, node: FromChangelog, planning: Planning) -> Changes:
        """Return all changes: like Flink, the planner does not read the codes."""
        planning.accept("FROM_CHANGELOG", node.input, INSERTS)
        return ALL

    def asks_before(self, node: FromChangelog, planning: Planning, wants_before: bool) -> bool:
        """Return False, because the input is append-only."""
        return False

    def stream(self, node: FromChangelog, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        changes = planning.changes(node)
        inner = planning.stream(node.input, False)
        codes = {code: NAMES.index(change) for code, change in node.codes}
        operator = partial(FromChangelogOperator, node.operation, codes, node.columns, name_columns(node.schema))
        inputs = by_columns(inner, node.partition) if node.partition else inner.upstreams
        stream = Stream(
            planning.step("From Changelog", operator, inputs, True), node.schema, changes, not node.is_upsert
        )
        if stream.has_before or not wants_before:
            return stream
        return planning.with_before(stream, range(len(node.partition)))


#: a source of changes in a plan
Source: TypeAlias = Scan | StreamRows


def with_normalizers(plan: Node, table: Callable[[Scan], TableReader], has_duplicates: bool) -> Node:
    """Add the step above each table that is updated by key. `has_duplicates`: changes may arrive more than once."""
    if isinstance(plan, ChangelogNormalize):
        return plan
    located = _table_below(plan)
    if located is None:
        return with_inputs(plan, [with_normalizers(part, table, has_duplicates) for part in plan.inputs()])
    source, key = located
    reader = get_reader(source, table)
    if not goes_by_key(reader, has_duplicates):
        return plan
    # The planner identifies nodes by their ids, so the input must be an object other than the replaced node.
    table_below = replace(plan)
    return ChangelogNormalize(schema=plan.schema, input=table_below, key=tuple(key[index] for index in reader.key))


def get_reader(source: Source, table: Callable[[Scan], TableReader]) -> TableReader | StreamRows:
    """Return the object that describes the changes of a table or stream."""
    return table(source) if isinstance(source, Scan) else source


def goes_by_key(reader: TableReader | StreamRows, has_duplicates: bool) -> bool:
    """Return whether a table is updated by key. `has_duplicates`: changes may arrive more than once."""
    is_by_key = Changes.UPDATE in reader.changes and (reader.is_upsert or not reader.has_before)
    return is_by_key or (has_duplicates and reader.changes != INSERTS and bool(reader.key))


def _table_below(node: Node, is_narrowed: bool = False) -> tuple[Source, dict[int, int]] | None:
    """Return the table or stream of a node that adds only watermarks and projections, and the positions of its columns.

    `is_narrowed`: whether columns may have been left out above the watermarks.
    """
    path: list[Project] = []
    if isinstance(node, Project) and is_narrowed:
        path.append(node)
        node = node.input
    if isinstance(node, WatermarkAssigner):
        node = node.input
        while isinstance(node, Project):
            path.append(node)
            node = node.input
    if not isinstance(node, Scan | StreamRows):
        return None
    positions = {index: index for index in range(len(node.schema))}
    for project in reversed(path):
        at = {
            expression.index: position
            for position, expression in enumerate(project.expressions)
            if isinstance(expression, Field)
        }
        positions = {index: at[position] for index, position in positions.items() if position in at}
    return node, positions


def find_source(node: ChangelogNormalize) -> Source:
    """Return the table or stream of a step."""
    located = _table_below(node.input, is_narrowed=True)
    assert located is not None  # checked by `with_normalizers`
    return located[0]


class NormalizeRule(Rule[ChangelogNormalize]):
    """See the module docstring."""

    nodes = (ChangelogNormalize,)

    def changes(self, node: ChangelogNormalize, planning: Planning) -> Changes:
        """See `Rule`."""
        return planning.changes(node.input)

    def asks_before(self, node: ChangelogNormalize, planning: Planning, wants_before: bool) -> bool:
        """Return False, because the step stores the previous rows."""
        return False

    def stream(self, node: ChangelogNormalize, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        reader = get_reader(find_source(node), planning.table)
        is_whole = isinstance(reader, TableReader) and reader.has_full_deletes
        has_whole_rows = not reader.is_upsert or is_whole or Changes.DELETE not in reader.changes
        # A rejected row becomes a deletion without the columns of the previous row.
        has_whole_rows = has_whole_rows and not _drops_rows(node)
        is_asked = wants_before and not reader.has_before
        if not planning.options.has_duplicates and not is_asked and (has_whole_rows or id(node) in planning.by_key):
            return planning.stream(node.input, False)
        return normalized(node, planning, wants_before)


def _drops_rows(node: ChangelogNormalize) -> bool:
    """Return whether the watermark step below drops rows with a NULL event time."""
    below = node.input.input if isinstance(node.input, Project) else node.input
    return isinstance(below, WatermarkAssigner) and below.drops_null


def with_before(stream: Stream, key: Sequence[int], planning: Planning) -> Stream:
    """Return a stream whose updates include the previous row, for one with updates by these columns."""
    schema = stream.schema
    normalize = partial(ChangelogNormalizeOperator, key, schema.types, name_columns(schema), True)
    factory = lasting(normalize, planning.options.state_ttl_ms)
    upstreams = planning.step("Changelog Normalize", factory, by_columns(stream, key), is_stateful=True)
    return Stream(upstreams, schema, stream.changes, True)


def normalized(
    node: ChangelogNormalize, planning: Planning, wants_before: bool, condition: Typed | None = None
) -> Stream:
    """Return the normalized rows that satisfy a condition. Raises `ValidationError` for a table without a key."""
    if not node.key:
        source = find_source(node)
        title = source.title if isinstance(source, StreamRows) else ".".join(source.path)
        raise ValidationError(
            f"Table '{title}' produces a changelog stream that contains UPDATE_AFTER but no UPDATE_BEFORE. This "
            "requires defining primary key constraint on the table."
        )
    inner = planning.stream(node.input, False)
    sends_before = wants_before and Changes.UPDATE in inner.changes
    operator = partial(
        ChangelogNormalizeOperator,
        node.key,
        node.schema.types,
        name_columns(node.schema),
        sends_before,
        condition,
        planning.session,
    )
    factory = lasting(operator, planning.options.state_ttl_ms)
    upstreams = planning.step("Changelog Normalize", factory, by_columns(inner, node.key), is_stateful=True)
    return Stream(upstreams, node.schema, inner.changes, sends_before)


def asks_key_alone(condition: Typed, key: Collection[int]) -> bool:
    """Return whether a condition has one value per key, so that deletions with only their key can be filtered."""
    return is_stable(condition) and all(part.index in key for part in condition.walk() if isinstance(part, Field))


def deleted_by_key(node: Node, planning: Planning) -> set[int]:
    """Return the ids of the steps that need not complete deletions if the consumer accepts deletions by key."""
    match node:
        case ChangelogNormalize():
            return {id(node)}
        case WatermarkAssigner():
            return deleted_by_key(node.input, planning)
        case Project() | Filter():
            calc = planning.extract_calc(node)
            keys = planning.upsert_keys.of(calc.input)
            is_whole = calc.condition is not None and not any(asks_key_alone(calc.condition, key) for key in keys)
            if is_whole or not planning.upsert_keys.of(node):
                return set()
            return deleted_by_key(calc.input, planning)
        case Join(join_type=JoinType.INNER) if planning.upsert_keys.of(node):
            return deleted_by_key(node.left, planning) | deleted_by_key(node.right, planning)
        case _:
            return set()
