"""A lookup join over a changelog that retracts the rows it has emitted.

Two lookups of the same key may return different rows. So the matches of a row are stored while the row exists; its
retraction retracts the same matches. A retraction may arrive before its insert; then neither emits anything. Rows are
partitioned by their upsert key, or by all columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.core.columns.batch import ColumnBatch, as_columns
from penstock.core.operators.base import UserCodeError
from penstock.core.records import Batch
from penstock.table.connectors.lookup import LookupReader
from penstock.table.data.errors import TableRuntimeError
from penstock.table.plan.changes import DELETE, UPDATE_BEFORE
from penstock.table.streaming.lookups.lookup_join_operator import LookupJoinOperator
from penstock.table.streaming.lookups.lookup_settings import LookupSettings
from penstock.table.streaming.lookups.pairing import LookupSpec
from penstock.table.streaming.rows.held_rows import RowEquality, build_columns, to_canonical_rows
from penstock.table.streaming.rows.row_keys import RowKeys
from penstock.table.streaming.rows.row_tuples import pack_kinds
from penstock.table.streaming.rows.sessions import StreamSession

#: The state: key -> left row -> the matches of each insert of the row, as lists of right rows. None represents a
#: retraction that arrived before its insert.
FOUND: Final = "found"


class KeyedLookupJoinOperator(LookupJoinOperator):
    """See the module docstring, and `LookupJoinOperator`.

    Args:
        key: the indices of the columns that rows are partitioned by.
        own: the indices of the columns that identify a row, which exclude processing-time columns.
    """

    is_keyed = True

    def __init__(
        self,
        spec: LookupSpec,
        create_reader: Callable[[], LookupReader],
        settings: LookupSettings,
        session: StreamSession,
        key: Sequence[int],
        own: Sequence[int],
    ) -> None:
        super().__init__(spec, create_reader, settings, session)
        self._keys = RowKeys(key)
        self._own = tuple(own)
        self._equality = RowEquality([spec.left_types[index] for index in own], zeros="merged")

    def open(self) -> None:
        """Open the state."""
        table = self.context.keyed.table(FOUND)
        self._found, self._mark = table.entries(None), table.mark
        super().open()

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Look up the inserted rows, and retract the stored matches of the retracted rows."""
        records = as_columns(batch, self.context.operator_name)
        kinds = bytes(len(records)) if records.kinds is None else records.kinds
        goes = np.isin(np.frombuffer(kinds, np.uint8), (UPDATE_BEFORE, DELETE))
        columns = records.columns
        keys = self._keys.of(columns)
        own = [columns.column(index) for index in self._own]
        own_types = [self._spec.left_types[index] for index in self._own]
        rows = to_canonical_rows(own, own_types, len(records), zeros="apart")
        right_rows = self._looked_up(records, goes)
        left: list[int] = []
        right: list[tuple[Any, ...]] = []
        for row, (key, values) in enumerate(zip(keys, rows, strict=True)):
            matches = self._exchanged(key, values, None if goes[row] else right_rows[row])
            left += [row] * len(matches)
            right += matches
        self._mark(None, set(keys))
        if left:
            self._send(columns, kinds, left, right)

    def _looked_up(self, records: ColumnBatch, goes: Any) -> dict[int, list[tuple[Any, ...]]]:
        """Return the right rows of each inserted row."""
        comes = np.flatnonzero(~goes)
        if not len(comes):
            return {}
        rows = records if len(comes) == len(records) else records.take(comes)
        types = self._spec.right_types
        try:
            request = self._pairing.asked(rows)
            paired = self._pairing.pairs(rows, request, self.answer(request, len(rows)))
        except TableRuntimeError as error:
            raise UserCodeError(self.context.operator_name, f"a batch of {len(records)} rows") from error
        tuples = to_canonical_rows(paired.columns, types, len(paired.columns[0]) if paired.columns else 0)
        nothing = (None,) * len(types)
        right_rows: dict[int, list[tuple[Any, ...]]] = {int(row): [] for row in comes}
        for row, index in zip(comes[paired.left].tolist(), paired.right.tolist(), strict=True):
            right_rows[row].append(nothing if index < 0 or not types else tuples[index])
        return right_rows

    def _exchanged(
        self, key: Any, values: tuple[Any, ...], matches: list[tuple[Any, ...]] | None
    ) -> list[tuple[Any, ...]]:
        """Return the right rows to emit for an insert with these matches, or for a retraction. An insert emits nothing
        if its retraction arrived first.
        """
        rows = self._found.setdefault(key, {})
        if matches is None and values not in rows:
            values = self._equality.find(values, rows) or values
        waiting = rows.setdefault(values, [])
        is_other = bool(waiting) and (waiting[0] is None) != (matches is None)
        if not is_other:
            waiting.append(matches)
            return matches or []
        before: list[tuple[Any, ...]] | None = waiting.pop(0)
        if not waiting:
            del rows[values]
        if not rows:
            del self._found[key]
        return before or []

    def _send(self, columns: pa.RecordBatch, kinds: bytes, left: list[int], right: list[tuple[Any, ...]]) -> None:
        indices = np.array(left)
        width = len(self._spec.left_types)
        mine = [column.take(pa.array(indices)) for column in columns.columns[:width]]
        arrays = [*mine, *build_columns(right, self._spec.right_types)]
        sent = pa.RecordBatch.from_arrays(arrays, list(self._spec.names))
        self.output.collect(ColumnBatch(sent, None, pack_kinds(np.frombuffer(kinds, np.uint8)[indices].tobytes())))
