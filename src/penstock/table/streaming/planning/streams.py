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


def parallelism_in_order(inputs: Sequence[Upstream], are_changes: bool) -> int | None:
    """The parallelism of a step that passes rows on as they come: that of its inputs, so that they stay in order.

    Else the rows of an input that has a parallelism of its own would be dealt out to the subtasks in turn: what takes a
    row back could come ahead of the row, and a row behind the watermark of later ones. None for that of the job.
    `are_changes`: whether rows may be updated or deleted; a step that unites such inputs is one subtask if they differ.
    """
    if any(one.partitioner is not None for one in inputs):
        return None
    own = _parallelisms(inputs)
    if len(own) == 1:
        return own.pop()
    return 1 if own and are_changes else None


def differ_in_parallelism(inputs: Sequence[Upstream]) -> bool:
    """Whether some of these streams have another parallelism than others, None being that of the job."""
    return len(_parallelisms(inputs)) > 1


def _parallelisms(inputs: Sequence[Upstream]) -> set[int | None]:
    reads = [one.transformation for one in inputs]
    return {one.parallelism or (1 if one.parallelism_limit == 1 else None) for one in reads}
