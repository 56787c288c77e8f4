"""The edges of a bounded run: their consumers, and the form of the records on them."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from itertools import count

from penstock.core.batch.exchange import BatchExchange, Exchange, KeyedExchange, Places
from penstock.core.batch.rows import Rows
from penstock.core.graph.job_graph import JobGraph, JobVertex
from penstock.core.graph.pointwise import find_consumers
from penstock.core.operators.lockstep import LockstepOperator
from penstock.core.task.channels.partitioners import HashPartitioner
from penstock.core.task.program import OutEdge, VertexProgram


@dataclass(frozen=True)
class Consumer:
    """The consumer of an edge. `is_keyed`: the head of its vertex needs its records key by key.

    `has_records`: the records reach it without this task, which only determines their destinations.
    """

    parallelism: int
    max_parallelism: int
    is_keyed: bool
    has_records: bool = False


def is_keyed(vertex: JobVertex) -> bool:
    """Return whether the head of a vertex holds state per key, so that its input must come key by key."""
    program: VertexProgram = pickle.loads(vertex.program)
    return bool(program.operators[0].factory().is_keyed)


def keeps_step(vertex: JobVertex) -> bool:
    """Return whether the head of a vertex exchanges messages with its other subtasks, so that all must run at once."""
    program: VertexProgram = pickle.loads(vertex.program)
    return isinstance(program.operators[0].factory(), LockstepOperator)


def consumers_of_vertex(job_graph: JobGraph, vertex: JobVertex, keyed: list[bool]) -> dict[int, Consumer]:
    """Return the consumer of each output edge of a vertex; `keyed`: per vertex, whether its input comes key by key."""
    return {
        edge.index: Consumer(
            job_graph.vertices[edge.target].parallelism,
            job_graph.vertices[edge.target].max_parallelism,
            keyed[edge.target],
        )
        for edge in job_graph.get_outputs(vertex.index)
    }


def find_targets(out: OutEdge, consumer: Consumer, subtask: int, parallelism: int) -> range:
    """Return the consuming subtasks that a subtask, one of `parallelism`, reaches over an edge."""
    if out.partitioner.is_pointwise:
        return find_consumers(subtask, parallelism, consumer.parallelism)
    return range(consumer.parallelism)


def build_exchange(
    out: OutEdge, consumer: Consumer, rows: Rows, sequences: count[int], subtask: int, parallelism: int
) -> Exchange:
    """Create the exchange for the records that a subtask of `parallelism` sends over an edge; it adds to `rows`."""
    partitioner = out.partitioner
    if consumer.is_keyed and isinstance(partitioner, HashPartitioner):
        return KeyedExchange(
            out.edge,
            rows,
            sequences,
            partitioner,
            Places(consumer.parallelism, consumer.max_parallelism),
            out.consumer_name,
            not consumer.has_records,
        )
    reached = find_targets(out, consumer, subtask, parallelism)
    partitioner.set_up(subtask, len(reached), consumer.max_parallelism, out.consumer_name)
    return BatchExchange(out.edge, rows, sequences, partitioner, reached)
