"""How to convert the rows of a plan to records of a stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from penstock.base.errors import UnsupportedError
from penstock.base.typeinfo import TypeInformation
from penstock.core.operators.base import StreamOperator
from penstock.table.plan.changes import INSERTS, Changes
from penstock.table.plan.logical import Node
from penstock.table.plan.row_schema import RowSchema
from penstock.table.records.shapes import RecordShape
from penstock.table.streaming.records.to_records_operator import ToRecordsOperator
from penstock.table.streaming.rows.sessions import StreamSession


@dataclass(frozen=True)
class RecordTarget:
    """A plan and the records to create from its rows.

    Attributes:
        plan: produces the rows.
        schema: the columns as declared by the user; NULL in a NOT NULL column fails the job.
        shape: the shape of a record.
        type_info: the type of the records.
        accepts: the changes that the stream accepts.
        wants_before: whether updates include the previous row (UPDATE_BEFORE).
        rowtime: the index of the column that becomes the timestamp of a record, if any.
        key: the indexes of the primary key columns if rows are replaced by key; else empty.
        title: the name of the stream in errors.
    """

    plan: Node
    schema: RowSchema
    shape: RecordShape
    type_info: TypeInformation
    accepts: Changes = INSERTS
    wants_before: bool = True
    rowtime: int | None = None
    key: tuple[int, ...] = ()
    title: str = "*anonymous_datastream_sink*"

    def operator(self, session: StreamSession) -> Callable[[], StreamOperator]:
        """Return the factory of the operator."""
        names = tuple(self.plan.schema.names)
        return partial(ToRecordsOperator, self.shape, self.rowtime, self.wants_before, session, names)

    def check_key(self, changes: Changes, keys: Callable[[], frozenset[frozenset[int]]]) -> None:
        """Raise `UnsupportedError` if rows replace others by a key of the plan that is not the declared one."""
        if self.wants_before or changes == INSERTS or frozenset(self.key) in keys():
            return
        names = ", ".join(self.schema.names[index] for index in self.key)
        raise UnsupportedError(
            f"the rows of the table are not told apart by the primary key ({names}), so without the rows before "
            "updates nobody can tell which row is replaced: use ChangelogMode.all(), or declare the columns by which "
            "the query groups its rows as the primary key"
        )
