"""Joins of two changelogs: inner, outer, semi and anti joins, and inner joins of append-only inputs as columns.

`JoiningOperator` is the common part: state, candidates and output rows. `restored_rows` restores the rows of a join
from a snapshot with columns.

`JoinOperator`: outer joins emit a row without a match padded with NULL. The NULL-padded row is retracted before the
first match is emitted, and emitted again after the last match is retracted. Each row is emitted right after the row
that it replaces, because downstream operators show intermediate states. Inner joins keep the kinds of their input rows.
Outer joins emit inserts and deletes, except that retractions from the inner side keep their kind.

`SemiJoinOperator`: a semi or anti join emits left rows with, or without, a match on the right side. A change of a left
row that qualifies is passed on unchanged. A change on the right side emits the left rows that gain their first match or
lose their last one.

`ColumnJoinOperator`: both sides of an inner join of append-only inputs are stored as columns, and the rows of large
batches never become Python objects. A row is emitted with each match that arrived before it. Rows are never dropped, as
in any regular join without a state TTL. With RocksDB, the columns are in mapped files. A batch of a few rows is joined
in Python (`SideOfFewRows`), unless its rows have many matches. A `JoinOperator` and this operator can each restore the
other's state.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.codecs.arrow_columns import nullable_key_table
from penstock.codecs.column_data import ColumnData
from penstock.runtime.columns import ColumnBatch, ColumnKey, as_columns
from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.operators.watermarks import TimerQueue
from penstock.runtime.records import Batch
from penstock.sql.data.arrow import arrow_type
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.data.row_data import RowData, RowLayout
from penstock.sql.data.types import DataType
from penstock.sql.expressions.columns import Columns
from penstock.sql.expressions.evaluator import Evaluator
from penstock.sql.expressions.row_program import RowProgram, build_row_program
from penstock.sql.logical.nodes import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, JoinType
from penstock.sql.stream.joins import sides
from penstock.sql.stream.rows.columns import key_hashes
from penstock.sql.stream.rows.rows import TupleKeys, UncutRows, build_columns, pack_kinds, to_canonical_rows, to_tuples
from penstock.sql.stream.rows.state_ttl import EvaluatingOperator, StreamSession
from penstock.sql.typed import Field, Typed
from penstock.state.backend import KeyedTable
from penstock.state.equality import Zeros
from penstock.state.key_columns import ColumnsCapture, ColumnStates, RowMeaning
from penstock.state.snapshot import StateCapture


def restored_rows(states: ColumnStates, name: str, about: str) -> pa.Table | None:
    """Return `ColumnStates.take` with maps whose keys are nullable. Earlier releases stored plain maps."""
    table = states.take(name, about)
    return None if table is None else nullable_key_table(table)


#: The states of the sides.
SIDES: Final = ("left", "right")
#: The states of a join that stores rows as columns: the key columns, then the columns of the rows.
COLUMN_STATES: Final = ("left_columns", "right_columns")
#: The expiration times of the rows of each side.
EXPIRIES: Final = ("left_expiries", "right_expiries")
#: Columnar state is imported in batches of this many rows; state may be evicted from memory after each.
_ROWS_AT_ONCE: Final = 1 << 14
#: The change that retracts a change.
OPPOSITE: Final = {INSERT: DELETE, UPDATE_AFTER: UPDATE_BEFORE, UPDATE_BEFORE: UPDATE_AFTER, DELETE: INSERT}


def about_columns(nulls_match: Sequence[bool]) -> str:
    """Return the description of a join's columnar states, see `ColumnStates`."""
    return f"the rows of a join by {len(nulls_match)} columns"


class Sent:
    """Rows to emit: their positions in the batch and among the rows of the other side, None for NULL; kinds."""

    __slots__ = ("kinds", "mine", "other")

    def __init__(self) -> None:
        self.mine: list[int | None] = []
        self.other: list[int | None] = []
        self.kinds = bytearray()

    def add(self, mine: int | None, other: int | None, kind: int, times: int = 1) -> None:
        """Add a row `times` times; a negative number retracts it."""
        if times < 0:
            kind, times = OPPOSITE[kind], -times
        for _ in range(times):
            self.mine.append(mine)
            self.other.append(other)
            self.kinds.append(kind)


class JoiningOperator(EvaluatingOperator):
    """The base class. A subclass defines how inserting or retracting a row affects its matches.

    Args:
        join_type: determines which rows the join emits.
        keys: the indices of the key columns of each side; empty to pair all rows.
        nulls_match: for each key column, whether NULL equals NULL.
        condition: a further condition on pairs, over the columns of both sides.
        types: the types of each side's row columns; further columns serve only as keys.
        names: the names of the output columns.
        ids: for a side whose updates come without UPDATE_BEFORE, the indices of the columns that identify the
            replaced row; None for other sides. Cannot be combined with a condition.
    """

    is_keyed = True
    #: how long the rows of each side live after they were written; 0 for no expiration
    ttl_ms: tuple[int, int] = (0, 0)
    #: whether the output has the columns of the right side
    gives_right: ClassVar[bool] = True

    def __init__(
        self,
        join_type: JoinType,
        keys: tuple[Sequence[int], Sequence[int]],
        nulls_match: Sequence[bool],
        condition: Typed | None,
        types: tuple[Sequence[DataType], Sequence[DataType]],
        names: Sequence[str],
        session: StreamSession,
        ids: tuple[Sequence[int] | None, Sequence[int] | None] = (None, None),
    ) -> None:
        self._join_type = join_type
        self._keys = keys
        self._nulls_match = tuple(nulls_match)
        self._condition = condition
        self._types = types
        self._names = list(names)
        self._session = session
        self._ids = ids

    def initialize_state(self) -> None:
        """Open the state, and import the state of a `ColumnJoinOperator`."""
        super().initialize_state()
        #: states imported from another operator, without their rows
        self._taken: dict[str, pa.Table] = {}
        self._sides = [self._side(0), self._side(1)]

    def open(self) -> None:
        """Build the condition's evaluator."""
        self._finders = [sides.SideKeys(indices, self._nulls_match) for indices in self._keys]
        self._where: sides.PairCondition | None = None
        if self._condition is not None:
            session = self.running(self._session)
            self._where = sides.PairCondition(
                self._condition, len(self._types[0]), Evaluator([self._condition], session)
            )

    def _side(self, index: int) -> sides.Side:
        keyed, ttl_ms = self.context.keyed, self.ttl_ms[index]
        table = keyed.table(SIDES[index])
        side = sides.build_side(table, self._types[index], self._ids[index], ttl_ms > 0)
        columns = restored_rows(self.context.columns, COLUMN_STATES[index], about_columns(self._nulls_match))
        if columns is not None and columns.num_rows:
            self._take_columns(columns, index, table, side.zeros)
            self._taken[COLUMN_STATES[index]] = columns.slice(0, 0)
        if isinstance(side, sides.Expiring):
            side.begin(TimerQueue(keyed.table(EXPIRIES[index])), ttl_ms, self.context.now_ms())
        return side

    def _take_columns(self, columns: pa.Table, index: int, table: KeyedTable, zeros: Zeros) -> None:
        """Import the state of one side from a `ColumnJoinOperator`. All of its rows count as written now."""
        width, entries = len(self._nulls_match), table.entries(None)
        of_key = sides.SideKeys(range(width), self._nulls_match)
        for batch in columns.to_batches(max_chunksize=_ROWS_AT_ONCE):
            keys = of_key.of(batch)
            rows = to_canonical_rows(batch.columns[width:], self._types[index], len(keys), zeros)
            for key, row in zip(keys, rows, strict=True):
                stored = entries.get(key)
                if stored is None:
                    stored = entries[key] = {}
                stored.setdefault(row, [0, 0])[sides.COUNT] += 1
            table.mark(None, set(keys))
            if table.settle is not None:
                table.settle()

    def snapshot_state(self, checkpoint_id: int) -> list[StateCapture]:
        """Capture the rows by key; the states that they were imported from are now empty."""
        about = about_columns(self._nulls_match)
        emptied = [
            ColumnsCapture(name, table, tuple(table.column_names[: len(self._nulls_match)]), about)
            for name, table in self._taken.items()
        ]
        return [*super().snapshot_state(checkpoint_id), *emptied]

    def next_timer_ms(self) -> int | None:
        """Return when the next rows expire."""
        due = [side.next_timer_ms() for side in self._sides if isinstance(side, sides.Expiring)]
        return min((timer_ms for timer_ms in due if timer_ms is not None), default=None)

    def on_processing_time(self, now_ms: int) -> None:
        """Remove expired rows."""
        for side in self._sides:
            if isinstance(side, sides.Expiring):
                side.fire(now_ms)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Find the matches of all rows, then apply the rows one by one."""
        records = as_columns(batch, self.context.operator_name)
        columns = records.columns
        mine, other = self._sides[input_index], self._sides[1 - input_index]
        finder = self._finders[input_index]
        keys = [sides.NO_MATCH if finder.matches_nothing(key) else key for key in finder.of(columns)]
        changed = set(keys)
        changed.discard(sides.NO_MATCH)
        for side in self._sides:
            if isinstance(side, sides.Expiring):
                side.look(changed, self.context.now_ms())
        rows = to_canonical_rows(columns.columns[: len(mine.types)], mine.types, len(records), mine.zeros)
        kinds = records.kinds if records.kinds is not None else bytes(len(records))
        changes_matches = self.changes_matches(input_index == 0)
        written = other if changes_matches and isinstance(other, sides.Expiring) else None
        for start, stop in sides.runs(other, keys):
            pairs = sides.Pairs(other, keys, start, stop)
            try:
                if self._where is not None:
                    pairs.keep(self._where, columns, input_index == 0)
            except TableRuntimeError as error:
                raise UserCodeError(self.context.operator_name, f"a batch of {len(records)} rows") from error
            sent = Sent()
            for row in range(start, stop):
                kind, key = kinds[row], keys[row]
                goes = kind in (UPDATE_BEFORE, DELETE)
                counts = key is not sides.NO_MATCH and mine.counts(key, rows[row], goes)
                matches = self.join_row(row, kind, pairs, input_index == 0, counts, sent)
                if written is not None and counts:
                    for position in pairs.of(row):
                        written.write(key, pairs.rows[position])
                if key is not sides.NO_MATCH:
                    mine.add(key, rows[row], -1 if goes else 1, matches)
            if sent.kinds:
                self.output.collect(self._rows(columns, pairs, sent, input_index == 0))
        mine.mark(changed)
        if changes_matches:
            other.mark({key for key in changed if key in other.entries})

    def join_row(self, row: int, kind: int, pairs: sides.Pairs, is_left: bool, counts: bool, sent: Sent) -> int:
        """Emit the changes caused by a row of the batch, and update the entries of its matches. Returns the number of
        matches.

        `counts`: whether the row changes the number of rows instead of replacing another row.
        """
        raise NotImplementedError

    def changes_matches(self, is_left: bool) -> bool:
        """Return whether rows of this side change the stored entries of their matches."""
        raise NotImplementedError

    def _rows(self, columns: pa.RecordBatch, pairs: sides.Pairs, sent: Sent, is_left: bool) -> ColumnBatch:
        gives_mine = is_left or self.gives_right
        gives_other = not is_left or self.gives_right
        width = len(self._types[0 if is_left else 1])
        mine = take_rows(columns.columns[:width], sent.mine) if gives_mine else []
        other = take_rows(pairs.columns(), sent.other) if gives_other else []
        arrays = [*mine, *other] if is_left else [*other, *mine]
        kinds = pack_kinds(sent.kinds)
        return ColumnBatch(pa.RecordBatch.from_arrays(arrays, self._names), None, kinds)


def take_rows(columns: Sequence[pa.Array], positions: list[int | None]) -> list[Any]:
    """Take the rows at these positions from the columns; None becomes NULL."""
    indices = pa.array(positions, pa.int64())
    return [column.take(indices) for column in columns]


class JoinOperator(JoiningOperator):
    """INNER, LEFT, RIGHT and FULL. See the module docstring."""

    def open(self) -> None:
        """See `JoiningOperator`."""
        super().open()
        self._keeps = (self._join_type.keeps_left, self._join_type.keeps_right)

    def changes_matches(self, is_left: bool) -> bool:
        """See `JoiningOperator`."""
        return self._keeps[1 if is_left else 0]

    def join_row(self, row: int, kind: int, pairs: sides.Pairs, is_left: bool, counts: bool, sent: Sent) -> int:
        """See `JoiningOperator`."""
        keeps_mine, keeps_other = self._keeps if is_left else self._keeps[::-1]
        entries, positions = pairs.entries, pairs.of(row)
        matches = sum(entries[index][sides.COUNT] for index in positions)
        goes = kind in (UPDATE_BEFORE, DELETE)
        as_kind = kind
        if keeps_mine or (keeps_other and not goes):
            as_kind = DELETE if goes else INSERT
        if not (keeps_other and counts):
            for position in positions:
                sent.add(row, position, as_kind, entries[position][sides.COUNT])
        else:
            for position in positions:
                entry = entries[position]
                is_alone = entry[sides.MATCHES] == (1 if goes else 0)
                entry[sides.MATCHES] += -1 if goes else 1
                _swap(row, position, as_kind, entry[sides.COUNT], is_alone, sent)
        if keeps_mine and matches <= 0:
            sent.add(row, None, as_kind)
        return matches


def _swap(row: int, position: int, kind: int, times: int, is_alone: bool, sent: Sent) -> None:
    """Emit a pair once per copy of the other row.

    If `is_alone`, each copy of the pair replaces a NULL-padded row, or is replaced by one.
    """
    if not is_alone or times < 0:
        sent.add(row, position, kind, times)
    goes = kind in (UPDATE_BEFORE, DELETE)
    if is_alone and times < 0:
        sent.add(None, position, INSERT if goes else DELETE, times)
    for _ in range(times if is_alone else 0):
        if not goes:
            sent.add(None, position, DELETE)
        sent.add(row, position, kind)
        if goes:
            sent.add(None, position, INSERT)


class SemiJoinOperator(JoiningOperator):
    """SEMI and ANTI. See the module docstring."""

    gives_right = False

    def changes_matches(self, is_left: bool) -> bool:
        """See `JoiningOperator`."""
        return not is_left

    def join_row(self, row: int, kind: int, pairs: sides.Pairs, is_left: bool, counts: bool, sent: Sent) -> int:
        """See `JoiningOperator`."""
        entries, positions, is_anti = pairs.entries, pairs.of(row), self._join_type is JoinType.ANTI
        if is_left:
            matches = sum(entries[index][sides.COUNT] for index in positions)
            if (matches <= 0) == is_anti:
                sent.add(row, None, kind)
            return matches
        goes = kind in (UPDATE_BEFORE, DELETE)
        if is_anti:
            kind = INSERT if goes else DELETE
        for position in positions if counts else ():
            entry = entries[position]
            before = entry[sides.MATCHES]
            entry[sides.MATCHES] += -1 if goes else 1
            if (before <= 0) != (entry[sides.MATCHES] <= 0):
                sent.add(None, position, kind, entry[sides.COUNT])
        return 0


#: The approximate maximum number of pairs to process at once.
_PAIRS_MAX: Final = 1 << 18


#: Batches of at most this many rows are processed in Python: half of what costs as much by kernels for wide rows.
FEW_ROWS: Final = 128


class ColumnJoinOperator(EvaluatingOperator):
    """See the module docstring, and `JoiningOperator` for the arguments.

    Args:
        key_types: the types of the key columns; at least one.
        labels: what users call the columns of either input, for readers of the state.
    """

    is_keyed = True

    def __init__(
        self,
        keys: tuple[Sequence[int], Sequence[int]],
        nulls_match: Sequence[bool],
        condition: Typed | None,
        types: tuple[Sequence[DataType], Sequence[DataType]],
        names: Sequence[str],
        session: StreamSession,
        key_types: Sequence[DataType],
        labels: tuple[Sequence[str], Sequence[str]] = ((), ()),
    ) -> None:
        self._labels = labels
        self._keys = keys
        self._key_types = tuple(key_types)
        self._nulls_match = tuple(nulls_match)
        self._condition = condition
        self._types = types
        self._names = list(names)
        self._session = session

    def initialize_state(self) -> None:
        """Load the restored rows."""
        super().initialize_state()
        width, store = len(self._nulls_match), self.context.keyed.store_columns
        self._sides = (sides.HeldColumns(width, store), sides.HeldColumns(width, store))
        self._key_names = tuple(f"key.{position}" for position in range(len(self._nulls_match)))
        self._few = [self._build_few(index) for index in (0, 1)]
        for index, side in enumerate(self._sides):
            restored = restored_rows(self.context.columns, COLUMN_STATES[index], about_columns(self._nulls_match))
            for rows in () if restored is None else restored.to_batches():
                side.add(key_hashes(rows.columns[: len(self._key_names)]), rows)
            self._take_rows(index)

    def _build_few(self, index: int) -> sides.SideOfFewRows:
        types = list(self._types[index])
        width = len(types)
        # The key columns that are not columns of the rows follow them.
        further = {
            position: kind
            for position, kind in zip(self._keys[index], self._key_types, strict=True)
            if position >= width
        }
        types += [further[position] for position in sorted(further)]
        names = self._build_column_names(index)
        layout = RowLayout(list(map(str, range(len(types)))), types)
        return sides.SideOfFewRows(self._sides[index], self._keys[index], layout, width, names)

    def _take_rows(self, index: int) -> None:
        """Load a side from the state of a `JoinOperator`."""
        if not self.context.keyed.has_restored(SIDES[index]):
            return
        keys: list[Any] = []
        rows: list[tuple[Any, ...]] = []
        for key, stored in self.context.keyed.table(SIDES[index]).drop(None).items():
            for row, entry in stored.items():
                keys += [key] * entry[sides.COUNT]
                rows += [row] * entry[sides.COUNT]
            if len(rows) >= _ROWS_AT_ONCE:
                self._add_rows(index, keys, rows)
                keys, rows = [], []
        if rows:
            self._add_rows(index, keys, rows)

    def _add_rows(self, index: int, keys: list[Any], rows: list[tuple[Any, ...]]) -> None:
        of_keys = [keys] if len(self._key_types) == 1 else list(zip(*keys, strict=True))
        columns = [pa.array(of_key, arrow_type(kind)) for of_key, kind in zip(of_keys, self._key_types, strict=True)]
        arrays = [*columns, *build_columns(rows, self._types[index])]
        self._sides[index].add(key_hashes(columns), pa.RecordBatch.from_arrays(arrays, self._build_column_names(index)))

    def _build_column_names(self, side: int) -> list[str]:
        return [*self._key_names, *(f"c{position}" for position in range(len(self._types[side])))]

    def open(self) -> None:
        """Create the evaluator of the condition."""
        self._evaluator: Evaluator | None = None
        if self._condition is not None:
            self._evaluator = Evaluator([self._condition], self.running(self._session))
            used = {part.index for part in self._condition.walk() if isinstance(part, Field)}
            self._used = sorted(used)
        self._row_keys = [TupleKeys(indices, self._key_types) for indices in self._keys]
        self._null_finder = sides.SideKeys(range(len(self._nulls_match)), self._nulls_match)
        self._pairs_layout = RowLayout(self._names, [*self._types[0], *self._types[1]])
        self._program: RowProgram | None = None
        self._needs_program = self._condition is not None

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Emit the rows with their matches, then store them."""
        records = as_columns(batch, self.context.operator_name)
        if len(records) <= FEW_ROWS:
            self._process_few(records, input_index)
            return
        for side in self._few:
            side.put_into_columns()
        # The columns alone get the rows of this side.
        self._few[input_index].forget()
        rows = self._with_keys(records, input_index)
        if not rows.num_rows:
            return
        hashes = key_hashes(rows.keys)
        self._send_all(rows, hashes, input_index)
        self._sides[input_index].add(hashes, rows.to_keep())

    def _send_all(self, rows: UncutRows, hashes: Any, input_index: int) -> None:
        """Emit rows with all their matches, which are in columns."""
        other = self._sides[1 - input_index]
        matches = other.matches(hashes, rows.keys)
        if matches is None:
            return
        try:
            for start, stop in matches.runs(_PAIRS_MAX):
                positions, numbers = matches.pairs(start, stop)
                if len(positions):
                    self._send(rows, positions, other, numbers, input_index == 0)
        except TableRuntimeError as error:
            raise UserCodeError(self.context.operator_name, f"a batch of {len(rows.data)} rows") from error

    # --- a few rows ---------------------------------------------------------------------------------------------------

    def _process_few(self, records: ColumnBatch, input_index: int) -> None:
        mine, other = self._few[input_index], self._few[1 - input_index]
        rows = to_tuples(records, mine.layout.types)
        keys = self._row_keys[input_index].of(rows)
        refuses = self._null_finder.matches_nothing
        if any(map(refuses, keys)):
            kept = [index for index, key in enumerate(keys) if not refuses(key)]
            rows, keys = [rows[index] for index in kept], [keys[index] for index in kept]
        if not rows:
            return
        matches = other.find(keys)
        if matches is not None:
            self._send_few(rows, matches, input_index, len(records))
        else:
            other.put_into_columns()
            with_keys = self._with_keys(records, input_index)
            self._send_all(with_keys, key_hashes(with_keys.keys), input_index)
        mine.add(keys, rows)

    def _send_few(
        self, rows: list[tuple[Any, ...]], matches: list[list[tuple[Any, ...]]], input_index: int, batch_rows: int
    ) -> None:
        """Emit rows with their matches, given for each row."""
        width = len(self._types[input_index])
        pairs = []
        for row, rows_of_key in zip(rows, matches, strict=True):
            if rows_of_key:
                own = row[:width]
                pairs += [own + match if input_index == 0 else match + own for match in rows_of_key]
        if pairs and self._evaluator is not None:
            try:
                pairs = self._choose(pairs, self._evaluator)
            except TableRuntimeError as error:
                raise UserCodeError(self.context.operator_name, f"a batch of {batch_rows} rows") from error
        if pairs:
            self.output.collect(ColumnBatch(RowData(self._pairs_layout, pairs)))

    def _choose(self, pairs: list[tuple[Any, ...]], evaluator: Evaluator) -> list[tuple[Any, ...]]:
        """Return the pairs for which the condition is true."""
        if self._needs_program:
            assert self._condition is not None
            self._program = build_row_program(self._condition, (), self.running(self._session))
            self._needs_program = False
        data = RowData(self._pairs_layout, pairs)
        if self._program is not None:
            try:
                return [pairs[index] for index in self._program.choose(data) or ()]
            except TableRuntimeError:
                pass  # the kernels report the error, whatever the size of the batch
        (answers,) = evaluator(Columns.of(data.columns))
        return [pair for pair, holds in zip(pairs, answers.to_pylist(), strict=True) if holds]

    # --- many rows ----------------------------------------------------------------------------------------------------

    def _with_keys(self, records: ColumnBatch, side: int) -> UncutRows:
        """Return the rows that can have matches, with their key columns first."""
        columns = pa.RecordBatch.from_arrays(list(map(records.data.column, self._keys[side])), self._key_names)
        keys = ColumnKey(self._key_names).select_columns(columns)
        rows = UncutRows(keys, records.data, self._build_column_names(side))
        refused = [
            key.is_valid()
            for key, matches in zip(keys, self._nulls_match, strict=True)
            if key.null_count and not matches
        ]
        if not refused:
            return rows
        filtered = rows.cut().filter(reduce(pc.and_, refused))
        own = pa.RecordBatch.from_arrays(filtered.columns[len(keys) :], filtered.schema.names[len(keys) :])
        return UncutRows(filtered.columns[: len(keys)], ColumnData(own), rows.names)

    def _send(self, rows: UncutRows, positions: Any, other: sides.HeldColumns, numbers: Any, is_left: bool) -> None:
        if self._evaluator is not None:
            holds = self._holds(rows, positions, other, numbers, is_left)
            positions, numbers = positions[holds], numbers[holds]
            if not len(positions):
                return
        keys = len(self._key_names)
        widths = [len(types) for types in (self._types if is_left else self._types[::-1])]
        mine = [rows.taken(keys + index, positions) for index in range(widths[0])]
        theirs = other.taken(range(keys, keys + widths[1]), numbers)
        arrays = [*mine, *theirs] if is_left else [*theirs, *mine]
        self.output.collect(ColumnBatch(pa.RecordBatch.from_arrays(arrays, self._names)))

    def _holds(self, rows: UncutRows, positions: Any, other: sides.HeldColumns, numbers: Any, is_left: bool) -> Any:
        """Return for which pairs the condition is true."""
        assert self._evaluator is not None
        keys, width = len(self._key_names), len(self._types[0])
        lefts = [index for index in self._used if index < width]
        rights = [index for index in self._used if index >= width]
        mine, theirs = (lefts, rights) if is_left else (rights, lefts)
        begin = (0, width) if is_left else (width, 0)
        arrays = [pa.nulls(0)] * (max(self._used, default=-1) + 1)
        for index in mine:
            arrays[index] = rows.taken(keys + index - begin[0], positions)
        columns = other.taken([keys + index - begin[1] for index in theirs], numbers)
        for index, column in zip(theirs, columns, strict=True):
            arrays[index] = column
        (answers,) = self._evaluator(Columns(arrays, len(positions)))
        return pc.fill_null(answers, False).to_numpy(zero_copy_only=False)

    def snapshot_state(self, checkpoint_id: int) -> list[StateCapture]:
        """Capture the rows that are not in the last completed checkpoint."""
        for few in self._few:
            few.put_into_columns()
        captures = super().snapshot_state(checkpoint_id)
        about = about_columns(self._nulls_match)
        for state, side, labels in zip(COLUMN_STATES, self._sides, self._labels, strict=True):
            first = self.context.columns.start_capture(state, len(side), checkpoint_id)
            table = side.table(first)
            if table is not None:
                meaning = RowMeaning(labels={f"c{index}": label for index, label in enumerate(labels)})
                captures.append(ColumnsCapture(state, table, self._key_names, about, first, meaning=meaning))
        return captures
