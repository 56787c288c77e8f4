"""The streams of columns that the steps of a plan produce."""

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
    """The output of a step: where to read its rows, its changelog mode, and whether updates include both rows."""

    upstreams: tuple[Upstream, ...]
    schema: RowSchema
    changes: Changes
    has_before: bool


def name_columns(schema: RowSchema) -> list[str]:
    """Return the names of columns within streams, built from indexes, because names in a schema may repeat."""
    return [f"c{index}" for index in range(len(schema))]


def by_columns(stream: Stream, columns: Sequence[int]) -> list[Upstream]:
    """Partition a stream by these columns. Without columns, all rows go to one subtask."""
    partitioner: Partitioner = GlobalPartitioner()
    if columns:
        names = name_columns(stream.schema)
        partitioner = HashPartitioner(ColumnKey(tuple(names[column] for column in columns)))
    return [Upstream(upstream.transformation, partitioner, upstream.side_tag) for upstream in stream.upstreams]


def parallelism_in_order(inputs: Sequence[Upstream], are_changes: bool) -> int | None:
    """Return the parallelism of a step that passes rows on in order: the parallelism of its inputs.

    With another parallelism, the rows of an input with its own parallelism would be distributed round-robin. A
    retraction could then overtake its row, and a watermark the rows before it. None stands for the job's parallelism.
    `are_changes`: whether rows may be updated or deleted; a step that unites such inputs has one subtask if their
    parallelism differs.
    """
    if any(upstream.partitioner is not None for upstream in inputs):
        return None
    own = _parallelisms(inputs)
    if len(own) == 1:
        return own.pop()
    return 1 if own and are_changes else None


def differ_in_parallelism(inputs: Sequence[Upstream]) -> bool:
    """Return whether the parallelism of these streams differs. None stands for the job's parallelism."""
    return len(_parallelisms(inputs)) > 1


def _parallelisms(inputs: Sequence[Upstream]) -> set[int | None]:
    reads = [upstream.transformation for upstream in inputs]
    return {
        transformation.parallelism or (1 if transformation.parallelism_limit == 1 else None) for transformation in reads
    }
