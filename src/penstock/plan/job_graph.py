"""Translates the stream graph to the job graph: operators chained into vertices, and the remaining edges (E4).

Names of an operator's user functions, so that people and restores can tell `Keyed Process` operators apart.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError, shorten
from penstock.base.options import (
    BATCH_SAVEPOINT_PATH,
    BUFFER_TIMEOUT_MS,
    EXECUTION_TARGET,
    GLOBAL_JOB_PARAMETERS,
    MAX_PARALLELISM,
    OPERATOR_CHAINING_ENABLED,
    PARALLELISM,
    RUNTIME_MODE,
    TIMERS_AFTER_END_MAX,
)
from penstock.codecs import cloud
from penstock.codecs.cloud import pack_script
from penstock.plan.description import Plan
from penstock.plan.stream_graph import StreamEdge, StreamGraph, StreamNode, build_stream_graph
from penstock.plan.transformation import Chaining, Node, OperatorNode, Transformation, get_factory
from penstock.runtime.connector import Boundedness, Source
from penstock.runtime.graph.job_graph import BACK_FILL, JobEdge, JobGraph, JobVertex, OperatorInfo
from penstock.runtime.task.channels.partitioners import ForwardPartitioner
from penstock.runtime.task.operator_chain import ChainedOperator, OutEdge, VertexProgram
from penstock.state.migrations import registered


def function_name(node: Node) -> str:
    """Return the names of the functions, sources and sinks that a node passes to its operator, or of their classes.

    Lambdas have no name, and settings do not count. Both are left out, so the result may be "".
    """
    names = []
    waiting: list[Any] = [node]
    while waiting:
        part = waiting.pop(0)
        if isinstance(part, partial):
            waiting = [*part.args, *waiting]
        elif isinstance(part, OperatorNode):
            waiting = [*part.parts(), *waiting]
        elif name := _infer_name(part):
            names.append(name)
    return ", ".join(dict.fromkeys(names))


def _infer_name(value: Any) -> str:
    if value is None or isinstance(value, (bool, int, float, str, bytes, tuple, list, dict, set, enum.Enum, type)):
        return ""
    name: str = value.__qualname__ if hasattr(value, "__qualname__") else type(value).__qualname__
    name = name.removeprefix("_").replace("<locals>.", "")
    return "" if "<lambda>" in name else name


#: the number of characters of an operator's description in checkpoints
_DESCRIPTION_CHARS_MAX: Final = 1_000


def build_job_graph(transformations: Iterable[Transformation], configuration: Configuration, job_name: str) -> JobGraph:
    """Build the job graph of a program. It serializes functions, so serialization errors occur before anything runs."""
    return _build(plan_stream_graph(transformations, configuration), configuration, job_name)


def build_plan(transformations: Iterable[Transformation], configuration: Configuration, job_name: str) -> Plan:
    """Build the stream graph and the job graph of a program, for display."""
    graph = plan_stream_graph(transformations, configuration)
    return Plan(graph, _build(graph, configuration, job_name))


def plan_stream_graph(transformations: Iterable[Transformation], configuration: Configuration) -> StreamGraph:
    """Build the stream graph of a program with these settings."""
    return build_stream_graph(transformations, configuration.read(PARALLELISM), configuration.read(MAX_PARALLELISM))


def _build(graph: StreamGraph, configuration: Configuration, job_name: str) -> JobGraph:
    job_parameters = configuration.read(GLOBAL_JOB_PARAMETERS)
    builder = _JobGraphBuilder(
        graph,
        configuration.read(OPERATOR_CHAINING_ENABLED),
        configuration.read(BUFFER_TIMEOUT_MS),
        dict(job_parameters),
        configuration.read(TIMERS_AFTER_END_MAX),
    )
    is_local = configuration.read(EXECUTION_TARGET) == "local"
    script = b"" if is_local else pack_script()
    return replace(builder.build(job_name), mode=_mode(graph, configuration), script=script)


def _mode(graph: StreamGraph, configuration: Configuration) -> str:
    """Return the job's execution mode: as configured; in automatic mode, BATCH if all sources are bounded."""
    mode, savepoint_path = configuration.read(RUNTIME_MODE), configuration.read(BATCH_SAVEPOINT_PATH)
    unbounded = [
        node.name
        for node in graph.nodes
        if (source := node.transformation.source) is not None and source.boundedness is not Boundedness.BOUNDED
    ]
    is_local = configuration.read(EXECUTION_TARGET) == "local"
    for node in graph.nodes:
        if node.transformation.source is not None:
            node.transformation.source.check_tempo(mode, is_local)
    if savepoint_path is not None:
        if mode == "BATCH" or (mode == "AUTOMATIC" and not unbounded):
            return BACK_FILL
        raise ConfigurationError(
            f"{BATCH_SAVEPOINT_PATH.key()} is set, but execution.runtime-mode is {mode}: set it to BATCH, or remove "
            "the path"
        )
    if mode == "BATCH" and unbounded:
        raise ConfigurationError(
            f"execution.runtime-mode is BATCH, but the source {unbounded[0]!r} is unbounded; set it to STREAMING or "
            f"AUTOMATIC, or bound the source; with {BATCH_SAVEPOINT_PATH.key()} it is read up to its current end"
        )
    if mode == "AUTOMATIC":
        return "STREAMING" if unbounded else "BATCH"
    return mode


@dataclass
class _Chain:
    index: int
    nodes: list[StreamNode]


class _JobGraphBuilder:
    def __init__(
        self,
        graph: StreamGraph,
        chaining: bool,
        buffer_timeout_default_ms: int,
        job_parameters: dict[str, str],
        timers_after_end_max: int,
    ) -> None:
        self._graph = graph
        self._buffer_timeout_default_ms = buffer_timeout_default_ms
        self._job_parameters = job_parameters
        self._timers_after_end_max = timers_after_end_max
        self._chaining = chaining
        self._chains: list[_Chain] = []
        self._chain_of: dict[str, _Chain] = {}

    def build(self, job_name: str) -> JobGraph:
        for node in self._graph.nodes:
            _check_picklable(node)
        for node in self._graph.nodes:
            if len(node.in_edges) == 1 and self._is_chainable(node.in_edges[0]):
                chain = self._chain_of[node.in_edges[0].source.operator_id]
                chain.nodes.append(node)
            else:
                chain = _Chain(len(self._chains), [node])
                self._chains.append(chain)
            self._chain_of[node.operator_id] = chain
        edges = [
            (edge_id, edge)
            for edge_id, edge in enumerate(
                edge
                for node in self._graph.nodes
                for edge in node.in_edges
                if self._chain_of[edge.source.operator_id] is not self._chain_of[node.operator_id]
            )
        ]
        vertices = tuple(self._vertex(chain, edges) for chain in self._chains)
        job_edges = tuple(
            JobEdge(
                edge_id,
                self._chain_of[edge.source.operator_id].index,
                self._chain_of[edge.target.operator_id].index,
                edge.input_index,
                edge.partitioner.name,
                edge.partitioner.is_pointwise,
            )
            for edge_id, edge in edges
        )
        handlers = {
            node.operator_id: handler
            for node in self._graph.nodes
            if (handler := _client_handler(node.transformation)) is not None
        }
        return JobGraph(job_name, vertices, job_edges, handlers)

    def _is_chainable(self, edge: StreamEdge) -> bool:
        return (
            self._chaining
            and isinstance(edge.partitioner, ForwardPartitioner)
            and edge.source.parallelism == edge.target.parallelism
            and edge.source.max_parallelism == edge.target.max_parallelism
            and edge.source.slot_sharing_group == edge.target.slot_sharing_group
            and edge.source.transformation.chaining is not Chaining.NEVER
            and edge.target.transformation.chaining is Chaining.ALWAYS
        )

    def _vertex(self, chain: _Chain, edges: list[tuple[int, StreamEdge]]) -> JobVertex:
        position = {node.operator_id: i for i, node in enumerate(chain.nodes)}
        chained = []
        for node in chain.nodes:
            parent, side_tag = -1, None
            if node is not chain.nodes[0]:
                parent = position[node.in_edges[0].source.operator_id]
                side_tag = node.in_edges[0].side_tag
            t = node.transformation
            chained.append(ChainedOperator(node.operator_id, node.name, get_factory(t.node), parent, side_tag, t.uid))
        out_edges = tuple(
            OutEdge(edge_id, position[edge.source.operator_id], edge.partitioner, edge.side_tag, edge.target.name)
            for edge_id, edge in edges
            if edge.source.operator_id in position
        )
        read = {(position[e.source.operator_id], e.side_tag) for _, e in edges if e.source.operator_id in position}
        read |= {(operator.parent, operator.side_tag) for operator in chained}
        head = chain.nodes[0]
        sources: dict[str, Source[Any, Any]] = {}
        if head.transformation.source is not None:
            sources[head.operator_id] = head.transformation.source
        alignment = head.transformation.alignment
        return JobVertex(
            index=chain.index,
            name=" -> ".join(node.name for node in chain.nodes),
            parallelism=head.parallelism,
            max_parallelism=head.max_parallelism,
            operators=tuple(_info(node) for node in chain.nodes),
            program=_dumps(
                VertexProgram(
                    tuple(chained),
                    out_edges,
                    registered(),
                    self._buffer_timeout_ms(chain, out_edges),
                    self._job_parameters,
                    self._timers_after_end_max,
                ),
                head.name,
            ),
            sources=sources,
            slot_sharing_group=head.slot_sharing_group,
            alignments={} if alignment is None else {head.operator_id: alignment},
            side_outputs=tuple(
                (chain.nodes[index].name, tag)
                for index, tag in sorted(read, key=str)
                if tag is not None and chain.nodes[index].transformation.source is None
            ),
            parallelism_limit=_parallelism_limit(chain),
        )

    def _buffer_timeout_ms(self, chain: _Chain, out_edges: tuple[OutEdge, ...]) -> int | None:
        """Return the shortest buffer timeout of a task's edges, because a task flushes all its buffers together."""
        job_wide = self._buffer_timeout_default_ms
        requested = [chain.nodes[edge.operator].transformation.buffer_timeout_ms for edge in out_edges]
        if all(ms is None for ms in requested):
            return None
        timeouts = [job_wide if ms is None else ms for ms in requested]
        return min((ms for ms in timeouts if ms >= 0), default=-1)


def _parallelism_limit(chain: _Chain) -> int | None:
    limits = [node.transformation.parallelism_limit for node in chain.nodes]
    return min((limit for limit in limits if limit is not None), default=None)


def _info(node: StreamNode) -> OperatorInfo:
    transformation = node.transformation
    key_types = dict.fromkeys(
        str(upstream.key_type) for upstream in transformation.inputs if upstream.key_type is not None
    )
    return OperatorInfo(
        node.operator_id,
        node.name,
        transformation.uid,
        transformation.is_stateful,
        transformation.kind,
        function_name(transformation.node),
        ", ".join(key_types),
        transformation.has_placed_id,
        transformation.sink is not None and transformation.sink.shows_on_commit,
        shorten(transformation.description or "", _DESCRIPTION_CHARS_MAX),
    )


def _client_handler(transformation: Transformation) -> Callable[[int, bytes], None] | None:
    if transformation.client_handler is not None or transformation.sink is None:
        return transformation.client_handler
    return transformation.sink.client_handler()


def _check_picklable(node: StreamNode) -> None:
    _dumps(get_factory(node.transformation.node), node.name)
    for edge in node.in_edges:
        _dumps(edge.partitioner, f"{edge.partitioner.name} into {node.name}")


def _dumps(value: Any, name: str) -> bytes:
    try:
        serialised: bytes = cloud.dumps(value)
        return serialised
    except Exception as error:
        raise ConfigurationError(
            f"operator {name!r} cannot be sent to workers: its function, or something that it refers to, cannot be "
            f"serialised ({error}). Create such things (connections, locks, open files) in open() instead."
        ) from error
