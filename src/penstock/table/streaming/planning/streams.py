"""Streams of columns, as steps of a plan give them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.core.columns.keys import ColumnKey
from penstock.core.task.channels.partitioners import GlobalPartitioner, HashPartitioner, Partitioner
from penstock.plan.transformation import Upstream
from penstock.table.plan.changes import Changes
from penstock.table.plan.row_schema import RowSchema


@dataclass(frozen=True, slots=True)
class Stream:
    """What a step gives: where its rows are read, which changes they are, and whether updates come with both rows."""

    upstreams: tuple[Upstream, ...]
    schema: RowSchema
    changes: Changes
    has_before: bool


def names_of(schema: RowSchema) -> list[str]:
    """The names that columns have in streams: their places, because the names of a schema may be there twice."""
    return [f"c{index}" for index in range(len(schema))]


def by_columns(stream: Stream, columns: Sequence[int]) -> list[Upstream]:
    """A stream whose rows go to subtasks by these columns; to the only one without any."""
    partitioner: Partitioner = GlobalPartitioner()
    if columns:
        names = names_of(stream.schema)
        partitioner = HashPartitioner(ColumnKey(tuple(names[column] for column in columns)))
    return [Upstream(one.transformation, partitioner, one.side_tag) for one in stream.upstreams]
