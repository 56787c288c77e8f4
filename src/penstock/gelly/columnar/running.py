"""Runs a kernel over a graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.base.errors import WrongValueError
from penstock.datastream.data_stream import DataStream
from penstock.gelly.base.elements import EdgeDirection
from penstock.gelly.base.graph_base import GraphBase
from penstock.gelly.base.lockstep import Input, by_id, in_step
from penstock.gelly.columnar.kernel import Kernel
from penstock.gelly.columnar.operator import BY_SOURCE, BY_TARGET, GIVEN, VERTICES, KernelOperator


def run_kernel(
    graph: GraphBase,
    kernel: Kernel,
    max_iterations: int | None,
    name: str,
    record: Callable[..., Any],
    parallelism: int | None = None,
) -> DataStream:
    """Return a stream of the kernel's results. The kernel runs once, when a job reads the stream.

    Args:
        graph: the graph.
        kernel: the work of a superstep.
        max_iterations: the maximum number of supersteps; None for no limit.
        name: its name in plans, logs and errors.
        record: makes a record from an id and the values of the kernel's `results`; `Vertex` or another NamedTuple.
        parallelism: the number of partitions of the graph; None for the environment's parallelism.

    Raises:
        ValueError: if the maximum is negative.
    """
    if max_iterations is not None and max_iterations < 0:
        raise WrongValueError(f"the maximum number of iterations must be 0 or more, not {max_iterations}")
    origin = graph.origin
    inputs = [] if origin.vertices is None else [Input(origin.vertices, by_id(0), VERTICES)]
    if kernel.direction is not EdgeDirection.IN:
        inputs.append(Input(origin.edges, by_id(0), BY_SOURCE))
    if kernel.direction is not EdgeDirection.OUT:
        inputs.append(Input(origin.edges, by_id(1), BY_TARGET))
    source = origin.initializer if origin.vertices is None else GIVEN
    operator = partial(KernelOperator, kernel, max_iterations, name, record, source)
    return in_step(operator, inputs, name, parallelism)
