"""An operator whose subtasks work in lockstep, as a bounded stream: it runs as a separate batch job, once (I3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from penstock.core.columns.batch import ColumnBatch
from penstock.core.operators.base import StreamOperator
from penstock.core.records import Batch
from penstock.core.task.channels.partitioners import BroadcastPartitioner, Partitioner
from penstock.datastream.data_stream import DataStream
from penstock.gelly.base.owners import IdPartitioner
from penstock.gelly.base.streams import lazy
from penstock.plan.transformation import Transformation, Upstream


@dataclass(frozen=True)
class Input:
    """An input stream of the operator, and its partitioner; `index` is the number of the input."""

    stream: DataStream
    partitioner: Partitioner
    index: int


def by_id(position: int) -> Partitioner:
    """Partition by the owner of the id at this position."""
    return IdPartitioner(position)


def to_all() -> Partitioner:
    """Broadcast to all partitions."""
    return BroadcastPartitioner()


def in_step(
    operator: Callable[[], StreamOperator], inputs: Sequence[Input], name: str, parallelism: int | None
) -> DataStream:
    """Return the operator's output. The loop runs once, when a job that reads it begins, in any execution mode.

    Args:
        operator: creates the operator.
        inputs: its inputs: bounded streams.
        name: its name in plans, logs and errors.
        parallelism: how many subtasks it has; None for the environment's number.

    Raises:
        ConfigurationError: if a stream comes from an unbounded source.
    """
    environment = inputs[0].stream.get_execution_environment()
    upstreams: list[Upstream] = []
    for stream_input in inputs:
        for upstream in _plain(stream_input).upstreams:
            upstreams.append(
                Upstream(upstream.transformation, stream_input.partitioner, upstream.side_tag, stream_input.index)
            )
    transformation = Transformation(
        "Lockstep", partial(operator), tuple(upstreams), name=name, parallelism=parallelism, is_stateful=True
    )
    environment.add(transformation)
    loop = environment.build_stream((Upstream(transformation),)).iterate(0).name(name)
    return lazy(loop.close_with(loop))


def _plain(stream_input: Input) -> DataStream:
    if isinstance(stream_input.partitioner, BroadcastPartitioner):
        return stream_input.stream
    return stream_input.stream._add("Plain Tuples", partial(_PlainTuplesOperator))


class _PlainTuplesOperator(StreamOperator):
    """Converts records to plain tuples, which are pickled in half the time of named ones; columns stay unchanged."""

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        if not isinstance(batch, ColumnBatch):
            batch = Batch(list(map(tuple, batch.values)))
        self.output.collect(batch)
