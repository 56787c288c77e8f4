"""Event-time temporal join: each left row with the version of the right table at the time of the left row.

A left row waits until the watermark, the minimum of both sides, reaches its time. No version from before that time can
then arrive, so the result is final. A version is a row of the right side. It lasts from its own time until the next
version of its key; a deletion ends it. When left rows are emitted, only the last version that the watermark has passed
is kept, even if it is a deletion, because an older version may arrive late.

As in Flink, a late left row is emitted at the next watermark, with one of the versions that still exist.

`Versions` has the versions of one key of a versioned table: how changes affect them, and which one is valid at a time.
The key's state entry has two lists in time order: the times, and the data of the version that begins at each time.
Changes may arrive in any order of their times, within the limits of the watermark. There are two kinds of versioned
tables:

- The table has one row for each key at a time, such as a table with a primary key (`TableVersions`). An insert or
  update begins a version, and a deletion ends one.
- The table is a view that keeps the last of several rows of each key, `ROW_NUMBER() OVER (PARTITION BY key ORDER BY
  time DESC) = 1`, over a table with updates or deletions (`ViewVersions`). An update does not end a version before
  the time of its new row, and a deleted row has no version: the last preceding row is valid instead.

`TemporalJoinRule` plans these joins: it finds the versions of the right side, and the join key.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.runtime.columns import ColumnBatch, as_columns
from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.operators.watermarks import TimerQueue
from penstock.runtime.records import Batch
from penstock.sql.analyzer.from_clause import NEEDS_TIME
from penstock.sql.analyzer.subqueries import TRUE, conjoin
from penstock.sql.data.arrow import arrow_type, milliseconds
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.data.types import BooleanType, DataType
from penstock.sql.expressions.columns import Columns
from penstock.sql.expressions.evaluator import Evaluator
from penstock.sql.logical.explain import expression_text, name_columns
from penstock.sql.logical.nodes import (
    DELETE,
    INSERTS,
    UPDATE_BEFORE,
    ChangelogNormalize,
    Changes,
    Filter,
    JoinType,
    Node,
    PlanColumn,
    Project,
    Rank,
    RowSchema,
    Scan,
    StreamRows,
    TemporalJoin,
    TimeAttribute,
    WatermarkAssigner,
)
from penstock.sql.optimizer.pushdown import extract_join_keys, split_condition
from penstock.sql.stream.joins.sides import SideKeys
from penstock.sql.stream.planning import rule as streams
from penstock.sql.stream.planning.rule import Planning, Rule, Stream, by_columns, with_keys
from penstock.sql.stream.planning.upsert_keys import Keys, find_column, projected
from penstock.sql.stream.rows.rows import RowEquality, build_columns, pack_kinds, to_tuples
from penstock.sql.stream.rows.state_ttl import EvaluatingOperator, StreamSession
from penstock.sql.stream.rows.watermarks import check_times
from penstock.sql.typed import Constant, Field, Typed

Row: TypeAlias = tuple[Any, ...]
#: fields of a version of a view
_PRESENT, _REPLACED, _FORGOTTEN = range(3)


class Versions(ABC):
    """Applies the changes of a versioned table to the versions of a key."""

    @abstractmethod
    def note(self, times: list[int], versions: list[Any], time: int, kind: int, row: Row, is_shown: bool) -> None:
        """Apply a change.

        Args:
            times: the times of the key's versions, in ms.
            versions: the data of these versions; both lists are changed in place.
            time: the time of the row, in ms.
            kind: the kind of the change, see `plan.changes`.
            row: the values of the row.
            is_shown: whether the row passes the view's filters; otherwise its version is empty.
        """

    @abstractmethod
    def shown(self, versions: list[Any], position: int) -> Row | None:
        """Return the row of the version at a position of the list; None for an empty version."""

    def valid(self, times: list[int], versions: list[Any], time: int) -> Row | None:
        """Return the row of the version that is valid at a time, or None."""
        position = bisect_right(times, time)
        return self.shown(versions, position - 1) if position else None

    def clean(self, times: list[int], versions: list[Any], time: int) -> None:
        """Drop the versions that ended before a time."""
        first = max(0, bisect_right(times, time) - 1)
        del times[:first], versions[:first]


class TableVersions(Versions):
    """The versions of a table with one row for each key at a time. A version is its row, or None if it is empty.

    Args:
        ends_by_before: whether the UPDATE_BEFORE of an update ends a version, because a filter may drop the new row;
            otherwise the new row ends it.
    """

    def __init__(self, ends_by_before: bool) -> None:
        self._ends_by_before = ends_by_before

    def note(self, times: list[int], versions: list[Any], time: int, kind: int, row: Row, is_shown: bool) -> None:
        """See `Versions`."""
        if kind == UPDATE_BEFORE and not self._ends_by_before:
            return
        version = row if is_shown and kind not in (UPDATE_BEFORE, DELETE) else None
        if not times or time > times[-1]:
            times.append(time)
            versions.append(version)
            return
        position = bisect_left(times, time)
        if times[position] == time:
            versions[position] = version
        else:
            times.insert(position, time)
            versions.insert(position, version)

    def shown(self, versions: list[Any], position: int) -> Row | None:
        """See `Versions`."""
        row: Row | None = versions[position]
        return row


class ViewVersions(Versions):
    """The versions of a view that keeps the last of several rows of each key.

    A version is a list of three: the rows of its time in the table, in arrival order, each with whether it is shown;
    the last row that an update replaced, or None; and the last row in the table among the dropped versions, or None.

    Args:
        ends_by_before: see `TableVersions`.
        equality: compares rows.
    """

    def __init__(self, ends_by_before: bool, equality: RowEquality) -> None:
        self._ends_by_before = ends_by_before
        self._equality = equality

    def note(self, times: list[int], versions: list[Any], time: int, kind: int, row: Row, is_shown: bool) -> None:
        """See `Versions`."""
        position = bisect_left(times, time)
        is_known = position < len(times) and times[position] == time
        if kind not in (UPDATE_BEFORE, DELETE):
            if not is_known:
                times.insert(position, time)
                versions.insert(position, [[], None, None])
            versions[position][_PRESENT].append((row, is_shown))
        elif is_known:  # otherwise its version was dropped already
            self._remove(versions[position], row, kind == UPDATE_BEFORE and not self._ends_by_before)

    def _remove(self, version: list[Any], row: Row, is_replaced: bool) -> None:
        present, same_rows = version[_PRESENT], self._equality.same
        same = next((index for index, (other, _) in enumerate(present) if same_rows(other, row)), None)
        if same is not None:
            removed = present.pop(same)
            version[_REPLACED] = removed if is_replaced and not present else None

    def shown(self, versions: list[Any], position: int) -> Row | None:
        """See `Versions`."""
        present, replaced, _ = versions[position]
        last = present[-1] if present else replaced or self._last_present(versions, position)
        return last[0] if last is not None and last[1] else None

    def _last_present(self, versions: list[Any], position: int) -> tuple[Row, bool] | None:
        """Return the last row in the table, up to and including a version."""
        for index in range(position, -1, -1):
            present, _, forgotten = versions[index]
            if present or forgotten:
                last: tuple[Row, bool] = present[-1] if present else forgotten
                return last
        return None

    def clean(self, times: list[int], versions: list[Any], time: int) -> None:
        """See `Versions`. Keeps the last row in the table, because a later version may be deleted."""
        first = max(0, bisect_right(times, time) - 1)
        if first:
            versions[first][_FORGOTTEN] = self._last_present(versions, first - 1)
        super().clean(times, versions, time)


#: The states: key -> [waiting rows, times of versions, versions, timer]; and timers.
ROWS: Final = "rows"
TIMERS: Final = "timers"
#: Fields of an entry: left rows as (time, kind, values) in arrival order; the times of versions and the versions in
#: time order, see `versions`; the time of the key's timer, or None.
_WAITING, _TIMES, _VERSIONS, _TIMER = range(4)


@dataclass(frozen=True, slots=True)
class TemporalSpec:
    """The specification of an event-time temporal join.

    Attributes:
        keeps_left: whether a left row without a version is emitted with NULL.
        keys: the indices of the key columns of each side.
        nulls_match: for each key column, whether NULL equals NULL.
        times: the index of the event time of each side.
        condition: a further condition on a row and its version, over the columns of both sides; or None.
        types: the types of the columns of each side; further columns serve only as keys.
        names: the names of the output columns.
        ends_by_before: see `TableVersions`.
        is_view: whether the right side is a view that keeps the last of several rows, see `ViewVersions`.
        shown: the index of the right column that says whether a row passes the view's filters; None if all rows do.
        columns: the names of the columns of each side, for errors.
    """

    keeps_left: bool
    keys: tuple[Sequence[int], Sequence[int]]
    nulls_match: tuple[bool, ...]
    times: tuple[int, int]
    condition: Typed | None
    types: tuple[Sequence[DataType], Sequence[DataType]]
    names: Sequence[str]
    ends_by_before: bool
    is_view: bool = False
    shown: int | None = None
    columns: tuple[Sequence[str], Sequence[str]] = ((), ())


class TemporalJoinOperator(EvaluatingOperator):
    """INNER and LEFT. See the module docstring."""

    is_keyed = True

    def __init__(self, spec: TemporalSpec, session: StreamSession) -> None:
        self._spec = spec
        self._session = session

    def open(self) -> None:
        """Open the state and build the condition's evaluator."""
        spec, table = self._spec, self.context.keyed.table(ROWS)
        self._entries, self._mark = table.entries(None), table.mark
        self._timers = TimerQueue(self.context.keyed.table(TIMERS))
        self._versions = (
            ViewVersions(spec.ends_by_before, RowEquality(spec.types[1]))
            if spec.is_view
            else TableVersions(spec.ends_by_before)
        )
        self._finders = [SideKeys(indices, spec.nulls_match) for indices in spec.keys]
        session = self.running(self._session)
        self._where = None if spec.condition is None else Evaluator([spec.condition], session)

    # --- rows ---------------------------------------------------------------------------------------------------------

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Let left rows wait, and record versions."""
        records = as_columns(batch, self.context.operator_name)
        times = self._read_times(records, input_index)
        keys = self._finders[input_index].of(records.columns)
        kinds = bytes(len(records)) if records.kinds is None else records.kinds
        rows = to_tuples(records, self._spec.types[input_index])
        shown = self._read_visibility(records) if input_index else repeat(True)
        entries, timers, note = self._entries, self._timers, self._versions.note
        for key, time, kind, row, is_shown in zip(keys, times, kinds, rows, shown, strict=False):
            entry = entries.get(key)
            if entry is None:
                entry = entries[key] = [[], [], [], None]
            if input_index:
                note(entry[_TIMES], entry[_VERSIONS], time, kind, row, is_shown)
            else:
                entry[_WAITING].append((time, kind, row))
            timer = entry[_TIMER]
            if timer is None or time < timer:
                if timer is not None:
                    timers.delete(timer, key)
                timers.register(time, key)
                entry[_TIMER] = time
        self._mark(None, set(keys))

    def _read_times(self, records: ColumnBatch, side: int) -> list[int]:
        spec = self._spec
        check_times(records, spec.times[side], spec.columns[side], self.context.operator_name, "a temporal join")
        times: list[int] = milliseconds(records.columns.column(spec.times[side])).tolist()
        return times

    def _read_visibility(self, records: ColumnBatch) -> Iterable[bool]:
        """Return whether each row of the right side passes the view's filters."""
        index = self._spec.shown
        if index is None:
            return repeat(True)
        return [bool(is_shown) for is_shown in records.columns.column(index).to_pylist()]

    # --- time ---------------------------------------------------------------------------------------------------------

    def process_watermark(self, timestamp: int) -> None:
        """Emit the rows whose time has come, and drop versions that no row in time can match."""
        kinds, left, right = bytearray(), [], []
        for _, key in self._timers.due(timestamp):
            entry = self._entries.get(key)
            if entry is None:
                continue
            refuses = self._finders[0].matches_nothing(key)
            for kind, row, version in self._answered(entry, timestamp):
                kinds.append(kind)
                left.append(row)
                right.append(None if refuses else version)
            self._clean(entry, key, timestamp)
            # Mark the entry now: without a mark it may be evicted unchanged between two timers.
            self._mark(None, (key,))
        if left:
            self._send(kinds, left, right)
        self.output.emit_watermark(timestamp)

    def _answered(self, entry: list[Any], up_to: int) -> list[tuple[int, tuple[Any, ...], tuple[Any, ...] | None]]:
        """Remove the rows whose time has come from the waiting rows, and return them with versions in arrival order."""
        times, versions, valid = entry[_TIMES], entry[_VERSIONS], self._versions.valid
        results, stays = [], []
        for waiting in entry[_WAITING]:
            time, kind, row = waiting
            if time > up_to:
                stays.append(waiting)
                continue
            results.append((kind, row, valid(times, versions, time)))
        entry[_WAITING] = stays
        return results

    def _clean(self, entry: list[Any], key: Any, up_to: int) -> None:
        """Drop the versions before the one that is valid at this time, and set the timer for the waiting rows."""
        self._versions.clean(entry[_TIMES], entry[_VERSIONS], up_to)
        if not entry[_TIMES] and not entry[_WAITING]:
            del self._entries[key]
            return
        entry[_TIMER] = min((waiting[0] for waiting in entry[_WAITING]), default=None)
        if entry[_TIMER] is not None:
            self._timers.register(entry[_TIMER], key)

    def _send(self, kinds: bytearray, left: list[Any], right: list[Any]) -> None:
        spec = self._spec
        mine = build_columns(left, spec.types[0])
        has = np.fromiter((version is not None for version in right), np.bool_, len(right))
        theirs = self._build_version_columns(right, has)
        if self._where is not None and has.any():
            try:
                (answers,) = self._where(Columns([*mine, *theirs], len(left)))
            except TableRuntimeError as error:
                raise UserCodeError(self.context.operator_name, f"{len(left)} rows with their versions") from error
            has &= answers.fill_null(False).to_numpy(zero_copy_only=False)
        if not spec.keeps_left:
            chosen = np.flatnonzero(has)
            indices = pa.array(chosen)
            mine = [column.take(indices) for column in mine]
            theirs = [column.take(indices) for column in theirs]
            kinds = bytearray(np.frombuffer(kinds, np.uint8)[chosen].tobytes())
        elif not has.all():
            indices = pa.array(np.arange(len(has)), mask=~has)
            theirs = [column.take(indices) for column in theirs]
        if kinds:
            columns = pa.RecordBatch.from_arrays([*mine, *theirs], list(spec.names))
            self.output.collect(ColumnBatch(columns, None, pack_kinds(kinds)))

    def _build_version_columns(self, right: list[Any], has: Any) -> list[pa.Array]:
        """Return the versions as columns, a row per left row. A version shared by several rows is converted once."""
        positions: dict[int, int] = {}
        distinct: list[tuple[Any, ...]] = []
        numbers: list[int | None] = []
        for version in right:
            if version is None:
                numbers.append(None)
                continue
            position = positions.setdefault(id(version), len(distinct))
            if position == len(distinct):
                distinct.append(version)
            numbers.append(position)
        types = self._spec.types[1]
        if not distinct:
            return [pa.nulls(len(right), arrow_type(kind)) for kind in types]
        indices = pa.array(numbers, pa.int64())
        return [column.take(indices) for column in build_columns(distinct, types)]


_BOOLEAN: Final = BooleanType(False)
_NEEDS = "Event-Time Temporal Table Join requires both primary key and row time attribute in versioned table, but no"


class TemporalJoinRule(Rule[TemporalJoin]):
    """Joins FOR SYSTEM_TIME AS OF an event time."""

    nodes = (TemporalJoin,)

    def changes(self, node: TemporalJoin, planning: Planning) -> Changes:
        """Return the changelog mode of the left side, which versions do not affect."""
        return planning.changes(node.left)

    def asks_before(self, node: TemporalJoin, planning: Planning, wants_before: bool) -> bool:
        """Require UPDATE_BEFORE for updates of an inner join: without a version, the new row does not replace the
        previous one.
        """
        return wants_before or (node.join_type is JoinType.INNER and planning.updates(node.left))

    def stream(self, node: TemporalJoin, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        time = _time_of_versions(node)
        key = _version_key(node, planning)
        width = len(node.left.schema)
        left_keys: list[Typed] = []
        right_keys: list[Typed] = []
        nulls_match: list[bool] = []
        rest: list[Typed] = []
        used: set[int] = set()
        for part in split_condition(node.condition):
            join_keys = extract_join_keys(part, width, planning.calls)
            column = find_column(join_keys.right[0]) if join_keys.right else None
            if column is not None and column.index in key and column.index not in used:
                used.add(column.index)
                left_keys += join_keys.left
                right_keys += join_keys.right
                nulls_match += join_keys.nulls_match
            else:
                rest.append(part)
        condition = conjoin(rest, planning.calls)
        left, left_indices = with_keys(node.left, left_keys)
        view = _find_view(node.right, time, planning)
        right, right_places = with_keys(node.right if view is None else view.rows, right_keys)
        spec = TemporalSpec(
            keeps_left=node.join_type is JoinType.LEFT,
            keys=(left_indices, right_places),
            nulls_match=tuple(nulls_match),
            times=(node.time.index, time),
            condition=None if condition == TRUE else condition,
            types=(node.left.schema.types, node.right.schema.types),
            names=streams.name_columns(node.schema),
            columns=(node.left.schema.names, node.right.schema.names),
            ends_by_before=_has_filter(node.right if view is None else view.input, planning),
            is_view=view is not None and view.has_updates,
            shown=None if view is None else len(node.right.schema),
        )
        rows = planning.stream(left, self.asks_before(node, planning, wants_before) and planning.updates(node.left))
        versions = planning.stream(right, view is not None and view.has_updates)
        inputs = [
            *by_columns(rows, left_indices),
            *(replace(upstream, input_index=1) for upstream in by_columns(versions, right_places)),
        ]
        operator = partial(TemporalJoinOperator, spec, planning.session)
        upstreams = planning.step(f"Temporal Join {node.join_type.value}", operator, inputs, is_stateful=True)
        return Stream(upstreams, node.schema, rows.changes, rows.has_before)


class _View(NamedTuple):
    """The input of a view that keeps the last row of each key.

    Attributes:
        input: the input of the view's top-N.
        rows: the view's columns for each input row, and whether the row passes the view's filters.
        has_updates: whether input rows may be retracted.
    """

    input: Node
    rows: Node
    has_updates: bool


def _find_view(node: Node, time: int, planning: Planning) -> _View | None:
    """Return the input of a view that keeps the last row by event time; None for other nodes.

    The view itself drops a row that arrives after a later one, or that a later one replaces. But each row is a version,
    so the join reads the view's input instead of its changes.
    """
    calc = planning.extract_calc(node)
    match calc.input:
        case Rank(start=1, end=1, end_column=None, shows_number=False, partition=partition, order=(key,)) if partition:
            rank = calc.input
        case _:
            return None
    expressions = rank.schema.fields() if calc.expressions is None else calc.expressions
    of_version = expressions[time]
    if not key.is_descending or not isinstance(of_version, Field) or of_version.index != key.index:
        return None
    inserts = planning.changes(rank.input) == INSERTS
    is_table = any(own <= set(partition) for own in planning.upsert_keys.of(rank.input))
    condition = Constant(_BOOLEAN, True) if calc.condition is None else calc.condition
    schema = RowSchema((*node.schema.columns, PlanColumn("$shown", condition.type)))
    rows = Project(schema=schema, input=rank.input, expressions=(*expressions, condition))
    return _View(rank.input, rows, not inserts and not is_table)


def _time_of_versions(node: TemporalJoin) -> int:
    """Return the index of the right side's event time."""
    columns = node.right.schema
    time = next((index for index, column in enumerate(columns) if column.time is TimeAttribute.ROWTIME), None)
    if time is None:
        raise ValidationError(f"{_NEEDS} row time attribute can be found.")
    left = node.left.schema[node.time.index]
    if left.time is None:
        raise ValidationError(NEEDS_TIME)
    if left.type.nullable() != columns[time].type.nullable():
        raise ValidationError(
            "Event-Time Temporal Table Join requires same rowtime type in left table and versioned table, but the "
            f"rowtime types are {left} and {columns[time]}."
        )
    return time


def _version_key(node: TemporalJoin, planning: Planning) -> frozenset[int]:
    """Return the columns of the right side that have one version per value at a time."""
    known = version_keys(node.right, planning)
    if not known:
        raise ValidationError(
            "Temporal Table Join requires primary key in versioned table, but no primary key can be found. "
            f"{_NEEDS} primary key can be found."
        )
    width = len(node.left.schema)
    on = extract_join_keys(node.condition, width, planning.calls)
    columns = {column.index for column in map(find_column, on.right) if column is not None}
    version_key = min((sorted(key) for key in known if key <= columns), default=None)
    if version_key is None:
        names = name_columns(node.left, node.right)
        key = ",".join(names[width + index] for index in min(map(sorted, known)))
        right = names[width:]
        pairs = zip(on.left, on.right, strict=True)
        condition = ", ".join(
            f"{expression_text(operand, names)}={expression_text(other, right)}" for operand, other in pairs
        )
        raise ValidationError(
            f"Temporal table's primary key [{key}] must be included in the equivalence condition of temporal join, but "
            f"current temporal join condition is [{condition}]."
        )
    return frozenset(version_key)


def version_keys(node: Node, planning: Planning) -> Keys:
    """Return the columns that identify the rows of a versioned table at any time: of a primary key, or of a view.

    A view that keeps the last row of each partition has one version of it at a time. The declared key of an append-only
    table means the same: each row is a version of its key.
    """
    match node:
        case Scan(key=key) | StreamRows(key=key) if key:
            return frozenset({frozenset(key)})
        case Rank(start=1, end=1, end_column=None, partition=partition) if partition:
            return frozenset({frozenset(partition)})
        case Project():
            return projected(version_keys(node.input, planning), node.expressions)
        case Filter() | WatermarkAssigner() | ChangelogNormalize():
            return version_keys(node.input, planning)
        case _:
            return planning.upsert_keys.of(node)


def _has_filter(node: Node, planning: Planning) -> bool:
    """Return whether the row that replaces another may be missing because a filter dropped it."""
    if isinstance(node, Filter):
        return planning.updates(node.input)
    return isinstance(node, Project | WatermarkAssigner) and _has_filter(node.input, planning)
