"""An operator whose subtasks work in step, as a bounded stream: it runs as a batch job of its own, once (I3)."""

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
    """A stream that the operator reads, and how it is dealt out; `index` is the number of the input."""

    stream: DataStream
    partitioner: Partitioner
    index: int


def by_id(position: int) -> Partitioner:
    """To the partition that owns the id at this position."""
    return IdPartitioner(position)


def to_all() -> Partitioner:
    """To all partitions."""
    return BroadcastPartitioner()


def in_step(
    operator: Callable[[], StreamOperator], inputs: Sequence[Input], name: str, parallelism: int | None
) -> DataStream:
    """What the operator emits; the loop runs when a job that reads it begins, in any runtime mode, and once.

    Args:
        operator: makes the operator.
        inputs: what it reads: bounded streams.
        name: what plans, logs and errors call it.
        parallelism: how many subtasks it has; None for the environment's number.

    Raises:
        ConfigurationError: if a stream comes from a source that never ends.
    """
    environment = inputs[0].stream.get_execution_environment()
    upstreams: list[Upstream] = []
    for one in inputs:
        for upstream in _plain(one).upstreams:
            upstreams.append(Upstream(upstream.transformation, one.partitioner, upstream.side_tag, one.index))
    transformation = Transformation(
        "Lockstep", partial(operator), tuple(upstreams), name=name, parallelism=parallelism, is_stateful=True
    )
    environment.add(transformation)
    loop = environment.stream_of((Upstream(transformation),)).iterate(0).name(name)
    return lazy(loop.close_with(loop))


def _plain(one: Input) -> DataStream:
    if isinstance(one.partitioner, BroadcastPartitioner):
        return one.stream
    return one.stream._add("Plain Tuples", partial(_PlainTuplesOperator))


class _PlainTuplesOperator(StreamOperator):
    """Records as plain tuples, which are pickled in half the time of named ones; columns stay what they are."""

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        if not isinstance(batch, ColumnBatch):
            batch = Batch(list(map(tuple, batch.values)))
        self.output.collect(batch)
