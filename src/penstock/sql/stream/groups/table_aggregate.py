"""Table aggregates of groups of a changelog.

The state is that of group aggregates; the last result of a group is a list of rows. A row that changes the list
retracts all rows of the old list and emits all rows of the new one, as deletes and inserts. If state expires, an
unchanged list is emitted again, which keeps its rows alive in downstream operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.runtime.columns.batch import ColumnBatch
from penstock.sql.data.arrow import to_column
from penstock.sql.data.types import DataType, RowType
from penstock.sql.logical.nodes import DELETE, INSERT, UserAggregateCall
from penstock.sql.stream.groups.group_aggregate import GroupAggregateOperator, Lives
from penstock.sql.stream.rows.evaluation import StreamSession
from penstock.sql.stream.rows.rows import RowEquality, pack_kinds
from penstock.state.equality import canonical_column


class TableAggregateOperator(GroupAggregateOperator):
    """See the module docstring.

    Args:
        keys: the indexes of the grouping columns.
        call: the aggregate call over columns of the input.
        types: the types of the input columns.
        names: the names of the output columns: keys, then the function's columns.
        retracts: whether the input may contain retractions.
        session: the session of the function.
    """

    def __init__(
        self,
        keys: Sequence[int],
        call: UserAggregateCall,
        types: Sequence[DataType],
        names: Sequence[str],
        retracts: bool,
        session: StreamSession,
    ) -> None:
        super().__init__(keys, (call,), types, names, retracts, True, None, session)
        assert isinstance(call.type, RowType)
        self._column_types = call.type.field_types()
        self._row_equality = RowEquality(self._column_types)

    def _send(
        self, records: ColumnBatch, lives: Lives, before: list[tuple[Any, ...] | None], values: list[list[Any]]
    ) -> None:
        """Emit the changes."""
        now: list[list[Any]] = [[] if result is None else result[0] for result in before]
        rows: list[int] = []
        kinds = bytearray()
        sent: list[tuple[Any, ...]] = []
        for row, (group, emitted) in enumerate(zip(lives.groups.tolist(), values[0], strict=True)):
            old, new = now[group], emitted if lives.alive is None or lives.alive[row] else []
            is_same = len(old) == len(new) and all(map(self._row_equality.same, old, new))
            if is_same and not (self._sends_same and new):
                continue
            now[group] = new
            rows += [row] * (len(old) + len(new))
            kinds += bytes((DELETE,)) * len(old) + bytes((INSERT,)) * len(new)
            sent += [*old, *new]
        if sent:
            chosen = pa.array(rows)
            keys = [canonical_column(records.columns.column(index).take(chosen)) for index in self._groups.places]
            columns = [
                to_column(list(column), kind)
                for column, kind in zip(zip(*sent, strict=True), self._column_types, strict=True)
            ]
            batch = pa.RecordBatch.from_arrays([*keys, *columns], self._names)
            self.output.collect(ColumnBatch(batch, None, pack_kinds(kinds)))
