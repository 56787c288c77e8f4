"""The computations of lookup joins: the keys to look up, and the pairs that answers form.

`Pairing` computes on whole columns. `KnownMatches` is for a few rows and a table whose answers do not change. Kernels
cost more than Python there, so it has the matches of the last keys as tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.runtime.columns import ColumnBatch
from penstock.sql.data.arrow import arrow_type, to_values
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.data.row_data import RowData, RowLayout
from penstock.sql.data.types import DataType
from penstock.sql.expressions.columns import Columns
from penstock.sql.expressions.evaluator import Evaluator
from penstock.sql.expressions.row_program import RowProgram, build_row_program
from penstock.sql.functions.definition import Session
from penstock.sql.stream.rows.rows import RowEquality, to_tuples
from penstock.sql.tables.connector import LookedUp
from penstock.sql.tables.tables import column_names
from penstock.sql.typed import Field, Typed
from penstock.state.equality import canonical_column
from penstock.state.key_columns import distinct_keys


@dataclass(frozen=True, slots=True)
class LookupSpec:
    """The specification of a lookup join; see `LookupJoin`.

    Attributes:
        keeps_left: whether a row without a match is emitted with NULL.
        table_types: the types of the table's stored columns.
        left_types: the types of the input columns.
        right_types: the types of `expressions`.
        names: the names of the output columns.
    """

    keeps_left: bool
    key_values: tuple[Typed, ...]
    where: Typed | None
    expressions: tuple[Typed, ...]
    asks: Typed | None
    condition: Typed | None
    table_types: tuple[DataType, ...]
    left_types: tuple[DataType, ...]
    right_types: tuple[DataType, ...]
    names: tuple[str, ...]


class Asked(NamedTuple):
    """The distinct keys of a batch, and for each row the number of its key, or -1 for rows without a lookup."""

    keys: pa.RecordBatch
    numbers: Any


class Paired(NamedTuple):
    """Pairs in the order of their left rows: numpy arrays of both rows' positions, -1 for NULL; the right columns."""

    left: Any
    right: Any
    columns: Sequence[pa.Array]


class Pairing:
    """Evaluates the expressions of a lookup join."""

    def __init__(self, spec: LookupSpec, session: Session) -> None:
        self._spec = spec
        self._keys = Evaluator(spec.key_values, session)
        self._asks = None if spec.asks is None else Evaluator([spec.asks], session)
        self._where = None if spec.where is None else Evaluator([spec.where], session)
        self._select = Evaluator(spec.expressions, session)
        self._condition = None if spec.condition is None else Evaluator([spec.condition], session)
        used = () if spec.condition is None else spec.condition.walk()
        self._used = sorted({part.index for part in used if isinstance(part, Field)})

    def asked(self, records: ColumnBatch) -> Asked:
        """Return the keys to look up for a batch. A key with NULL equals nothing, so it is not looked up."""
        columns = Columns.of(records.columns)
        arrays = self._keys(columns)
        names = column_names(len(arrays))
        mask = np.ones(len(records), np.bool_)
        if self._asks is not None:
            (answers,) = self._asks(columns)
            mask = _mask(answers)
        for array in arrays:
            if array.null_count:
                mask = mask & array.is_valid().to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(mask)
        numbers = np.full(len(records), -1, np.int64)
        if len(rows) < len(records):
            arrays = [array.take(pa.array(rows)) for array in arrays]
        if len(rows):
            arrays = list(map(canonical_column, arrays))
            codes, _ = distinct_keys(arrays)
            _, firsts = np.unique(codes, return_index=True)
            numbers[rows] = codes
            arrays = [array.take(pa.array(firsts)) for array in arrays]
        return Asked(pa.RecordBatch.from_arrays(arrays, names), numbers)

    def nothing(self) -> LookedUp:
        """Return the answer for an empty set of keys."""
        types = self._spec.table_types
        arrays = [pa.array([], arrow_type(kind)) for kind in types]
        return LookedUp(pa.RecordBatch.from_arrays(arrays, column_names(len(types))), pa.array([], pa.int64()))

    def pairs(self, records: ColumnBatch, request: Asked, answer: LookedUp) -> Paired:
        """Pair the rows of a batch with the rows that were found."""
        rows, numbers = answer.rows, answer.key_numbers.to_numpy(zero_copy_only=False)
        if self._where is not None and rows.num_rows:
            (answers,) = self._where(Columns.of(rows))
            indices = np.flatnonzero(_mask(answers))
            rows, numbers = rows.take(pa.array(indices)), numbers[indices]
        columns = self._select(Columns.of(rows))
        left, right = _places(request, numbers)
        if self._condition is not None and len(left):
            width = len(self._spec.left_types)
            arrays = [pa.nulls(0)] * (max(self._used, default=-1) + 1)
            for index in self._used:
                of_left = index < width
                column = records.columns.column(index) if of_left else columns[index - width]
                arrays[index] = column.take(pa.array(left if of_left else right))
            (answers,) = self._condition(Columns(arrays, len(left)))
            indices = np.flatnonzero(_mask(answers))
            left, right = left[indices], right[indices]
        if self._spec.keeps_left:
            left, right = _with_unmatched(left, right, len(records))
        return Paired(left, right, columns)

    def joined(self, records: ColumnBatch, request: Asked, answer: LookedUp) -> ColumnBatch:
        """Join the rows of a batch with the rows that were found. Keeps the order and the kinds of the rows."""
        paired = self.pairs(records, request, answer)
        mine = records.take(paired.left)
        width = len(self._spec.left_types)
        indices = pa.array(paired.right, mask=paired.right < 0)
        theirs = [column.take(indices) for column in paired.columns]
        columns = pa.RecordBatch.from_arrays([*mine.columns.columns[:width], *theirs], list(self._spec.names))
        return ColumnBatch(columns, mine.rowtimes, mine.kinds)


#: Batches of at most this many rows are joined in Python.
FEW_ROWS: Final = 64
#: The number of keys and matches at which they are forgotten.
_KNOWN_MAX: Final = 1 << 14


class KnownMatches:
    """See the module docstring. Use `build_known_matches`.

    Args:
        spec: has no condition on pairs.
        pairing: computes the matches of other keys.
        program: computes the key of a row, followed by whether it is looked up.
        look_up: looks up the keys of a batch; has the number of its rows as well.
    """

    def __init__(
        self, spec: LookupSpec, pairing: Pairing, program: RowProgram, look_up: Callable[[Asked, int], LookedUp]
    ) -> None:
        self._spec = spec
        self._pairing = pairing
        self._program = program
        self._look_up = look_up
        self._layout = RowLayout(spec.names, [*spec.left_types, *spec.right_types])
        self._no_match = [(None,) * len(spec.right_types)] if spec.keeps_left else []
        self._known: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
        self._size = 0

    def join(self, records: ColumnBatch) -> ColumnBatch | None:
        """Join the rows of a batch. Returns None if that is not possible in Python."""
        data = records.data
        if len(records) > FEW_ROWS or not self._program.takes(data):
            return None
        try:
            keys = self._program.project(data, range(len(records)))
        except TableRuntimeError:
            return None  # the kernels report the error, whatever the size of the batch
        known = self._known
        if not all(key in known for key in keys):
            self._learn(records, keys)
        rows = to_tuples(records, self._spec.left_types)
        joined: list[tuple[Any, ...]] = []
        numbers: list[int] = []
        for number, (row, key) in enumerate(zip(rows, keys, strict=True)):
            for match in known[key] or self._no_match:
                joined.append(row + match)
                numbers.append(number)
        kinds = None if records.kinds is None else bytes([records.kinds[number] for number in numbers])
        rowtimes = None if records.rowtimes is None else records.rowtimes[np.array(numbers, np.int64)]
        return ColumnBatch(RowData(self._layout, joined), rowtimes, kinds)

    def _learn(self, records: ColumnBatch, keys: Sequence[tuple[Any, ...]]) -> None:
        """Look up the keys of a batch."""
        if self._size > _KNOWN_MAX:
            self._known.clear()
            self._size = 0
        request = self._pairing.asked(records)
        paired = self._pairing.pairs(records, request, self._look_up(request, len(records)))
        columns = zip(paired.columns, self._spec.right_types, strict=True)
        values = list(zip(*[to_values(column, kind) for column, kind in columns], strict=True))
        matches: list[list[tuple[Any, ...]]] = [[] for _ in keys]
        for row, position in zip(paired.left.tolist(), paired.right.tolist(), strict=True):
            if position >= 0:
                matches[row].append(values[position] if values else ())
        for key, of_key in zip(keys, matches, strict=True):
            self._size += 1 + len(of_key)
            self._known[key] = of_key


def build_known_matches(
    spec: LookupSpec, pairing: Pairing, session: Session, look_up: Callable[[Asked, int], LookedUp]
) -> KnownMatches | None:
    """Return the join of a few rows; None if the specification does not allow it."""
    expressions = [*spec.key_values, *(() if spec.asks is None else (spec.asks,))]
    if spec.condition is not None or not RowEquality([value.type for value in spec.key_values]).is_plain:
        return None
    program = build_row_program(None, expressions, session)
    return None if program is None else KnownMatches(spec, pairing, program, look_up)


def missing(request: Asked, answer: LookedUp) -> Any:
    """Return the numbers of the keys without rows, as a numpy array."""
    return np.setdiff1d(np.arange(request.keys.num_rows), answer.key_numbers.to_numpy(zero_copy_only=False))


def merged(answer: LookedUp, more: LookedUp, key_numbers: Any) -> LookedUp:
    """Merge two answers. `key_numbers`: the numbers of the second answer's keys among the keys of the first."""
    if not more.rows.num_rows:
        return answer
    later = key_numbers[more.key_numbers.to_numpy(zero_copy_only=False)]
    numbers = np.concatenate([answer.key_numbers.to_numpy(zero_copy_only=False), later])
    order = np.argsort(numbers, kind="stable")
    rows = pa.concat_batches([answer.rows, more.rows.rename_columns(answer.rows.schema.names)])
    return LookedUp(rows.take(pa.array(order)), pa.array(numbers[order]))


def _mask(answers: pa.Array) -> Any:
    return pc.fill_null(answers, False).to_numpy(zero_copy_only=False)


def _places(request: Asked, numbers: Any) -> tuple[Any, Any]:
    """Return the pairs of rows of a batch and found rows. `numbers`: the key numbers of the found rows, ascending."""
    keys = np.arange(request.keys.num_rows + 1)  # an additional key without rows, for rows without a lookup
    starts = np.searchsorted(numbers, keys, side="left")
    counts = np.searchsorted(numbers, keys, side="right") - starts
    counts[-1] = 0
    of_row = counts[request.numbers]
    left = np.repeat(np.arange(len(of_row)), of_row)
    within = np.arange(len(left)) - np.repeat(np.cumsum(of_row) - of_row, of_row)
    return left, np.repeat(starts[request.numbers], of_row) + within


def _with_unmatched(left: Any, right: Any, rows: int) -> tuple[Any, Any]:
    """Add each row without a match to the pairs, with -1."""
    has = np.zeros(rows, np.bool_)
    has[left] = True
    alone = np.flatnonzero(~has)
    if not len(alone):
        return left, right
    left = np.concatenate([left, alone])
    right = np.concatenate([right, np.full(len(alone), -1, np.int64)])
    order = np.argsort(left, kind="stable")
    return left[order], right[order]
