"""The job graph of a program, built from its stream graph (E4), and the plan of a loop of the program.

`function_name` names an operator's user functions, so that people and restores can tell `Keyed Process` operators
apart.

`build_job_graph` translates the stream graph to the job graph: operators chained into vertices, and the remaining
edges.

`LoopPlan` splits a loop of a program into two programs: a prologue, computed once, and the step. The step lies between
the heads of the loop, which stand for the data at the start of a superstep, and the streams passed to `close_with`.
Streams from outside that the step reads do not change between supersteps. The *prologue* computes them once, together
with the initial data of the loop, and writes them to files. The *step* is a copy of the loop's transformations. It
reads these files in place of the heads and the outside streams, and writes its own result to files. Drivers find all
written data by its *role*.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from penstock.base import options
from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError, UnsupportedError, shorten
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.codecs import cloud
from penstock.codecs.cloud import pack_script
from penstock.connectors.cached import CachedSource, JobCachingSink
from penstock.plan.stream_graph import Plan, StreamEdge, StreamGraph, StreamNode, build_stream_graph, operator_id_of_uid
from penstock.plan.transformation import (
    Chaining,
    Node,
    OperatorNode,
    Transformation,
    Upstream,
    get_factory,
    upstream_first,
)
from penstock.runtime.connector import Boundedness, Source
from penstock.runtime.graph import BACK_FILL, JobEdge, JobGraph, JobVertex, OperatorInfo
from penstock.runtime.operators.base import TailOperator
from penstock.runtime.operators.connector import SinkOperator, SourceOperator
from penstock.runtime.operators.keyed.aggregates import KeyedMergeOperator
from penstock.runtime.operators.record.stateless import PassOnOperator
from penstock.runtime.task.channels.result_partition import ForwardPartitioner, HashPartitioner
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
    return build_stream_graph(
        transformations, configuration.read(options.PARALLELISM), configuration.read(options.MAX_PARALLELISM)
    )


def _build(graph: StreamGraph, configuration: Configuration, job_name: str) -> JobGraph:
    for node in graph.nodes:
        if node.transformation.sink is not None:
            node.transformation.sink.configure(configuration)
        if node.transformation.source is not None:
            node.transformation.source.configure(configuration)
    job_parameters = configuration.read(options.GLOBAL_JOB_PARAMETERS)
    builder = _JobGraphBuilder(
        graph,
        configuration.read(options.OPERATOR_CHAINING_ENABLED),
        configuration.read(options.BUFFER_TIMEOUT_MS),
        dict(job_parameters),
        configuration.read(options.TIMERS_AFTER_END_MAX),
    )
    is_local = configuration.read(options.EXECUTION_TARGET) == "local"
    script = b"" if is_local else pack_script()
    steps = [node.transformation for node in graph.nodes]
    return replace(
        builder.build(job_name),
        mode=_mode(graph, configuration),
        script=script,
        inputs=tuple(it for step in steps if step.source is not None for it in step.source.describe_lineage()),
        outputs=tuple(it for step in steps if step.sink is not None for it in step.sink.describe_lineage()),
    )


def _mode(graph: StreamGraph, configuration: Configuration) -> str:
    """Return the job's execution mode: as configured; in automatic mode, BATCH if all sources are bounded."""
    mode, savepoint_path = configuration.read(options.RUNTIME_MODE), configuration.read(options.BATCH_SAVEPOINT_PATH)
    unbounded = [
        node.name
        for node in graph.nodes
        if (source := node.transformation.source) is not None and source.boundedness is not Boundedness.BOUNDED
    ]
    is_local = configuration.read(options.EXECUTION_TARGET) == "local"
    for node in graph.nodes:
        if node.transformation.source is not None:
            node.transformation.source.check_execution_mode(mode, is_local)
    if savepoint_path is not None:
        if mode == "BATCH" or (mode == "AUTOMATIC" and not unbounded):
            return BACK_FILL
        raise ConfigurationError(
            f"{options.BATCH_SAVEPOINT_PATH.key()} is set, but execution.runtime-mode is {mode}: set it to BATCH, or "
            "remove "
            "the path"
        )
    if mode == "BATCH" and unbounded:
        raise ConfigurationError(
            f"execution.runtime-mode is BATCH, but the source {unbounded[0]!r} is unbounded; set it to STREAMING or "
            f"AUTOMATIC, or bound the source; with {options.BATCH_SAVEPOINT_PATH.key()} it is read up to its current "
            "end"
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


#: Roles of written data: of a bulk iteration, of a delta iteration, and of the termination criterion.
PARTIAL_SOLUTION: Final = "partial solution"
SOLUTION_SET: Final = "solution set"
WORKSET: Final = "workset"
TERMINATION: Final = "termination criterion"


class IterationHead(Transformation):
    """Stands for the data at the start of a superstep; it never becomes part of a job."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind, PassOnOperator)


@dataclass(frozen=True)
class LoopPrograms:
    """The programs that drivers run.

    `begins`: the roles that the prologue writes and supersteps replace; `kept`: the others.
    """

    prologue: list[Transformation]
    step: list[Transformation]
    begins: tuple[str, ...]
    kept: tuple[str, ...]


class LoopPlan:
    """A loop as the program defines it.

    Args:
        initial: role -> the streams with the initial data.
        heads: role -> the head that stands for the data in the step.
        results: role -> the step's result.
        key_selector: the key of the solution set, if there is one; the result of that role is then its delta.
    """

    def __init__(
        self,
        initial: Mapping[str, tuple[Upstream, ...]],
        heads: Mapping[str, IterationHead],
        results: Mapping[str, tuple[Upstream, ...]],
        key_selector: Callable[[Any], Any] | None = None,
    ) -> None:
        self._initial = initial
        self._heads = heads
        self._results = results
        self._key_selector = key_selector
        self._all = upstream_first(u.transformation for upstreams in results.values() for u in upstreams)
        self._inside = self._between()
        self._check_heads()

    @property
    def transformations(self) -> list[Transformation]:
        """All transformations of the program that the loop needs."""
        beginning = (u.transformation for upstreams in self._initial.values() for u in upstreams)
        return upstream_first([*beginning, *self._all])

    def _between(self) -> set[Transformation]:
        inside: set[Transformation] = set(self._heads.values())
        for transformation in self._all:
            if any(upstream.transformation in inside for upstream in transformation.inputs):
                inside.add(transformation)
        return inside

    def _check_heads(self) -> None:
        for transformation in self._all:
            if isinstance(transformation, IterationHead) and transformation not in self._inside:
                raise UnsupportedError(
                    f"a step reads data of {transformation.display_name!r}, which is another iteration: only the "
                    "result of close_with() leaves a loop, and loops cannot be nested"
                )

    def programs(self, directory: str) -> LoopPrograms:
        """Return the two programs; they write below `directory`, each role in its own directory."""
        invariants: dict[tuple[Transformation, str | None], str] = {}
        copies: dict[Transformation, Transformation] = {}
        for role, head in self._heads.items():
            copies[head] = _reader(role, head, head.parallelism)
        read: dict[str, Transformation] = {}

        def moved(upstream: Upstream) -> Upstream:
            of = upstream.transformation
            if of in self._inside:
                return replace(upstream, transformation=copies[of])
            role = invariants.setdefault((of, upstream.side_tag), f"input {len(invariants) + 1}: {of.display_name}")
            reader = read.get(role)
            if reader is None:
                reader = read[role] = _reader(role, of, _get_fixed_parallelism(of))
            return replace(upstream, transformation=reader, side_tag=None)

        for transformation in self._all:
            if transformation in self._inside and transformation not in copies:
                copies[transformation] = replace(transformation, inputs=tuple(map(moved, transformation.inputs)))
        step: list[Transformation] = []
        for role, upstreams in self._results.items():
            result = tuple(map(moved, upstreams))
            if role == SOLUTION_SET:
                before = Upstream(copies[self._heads[role]])
                result = (Upstream(self._merge((before,), result)),)
            step.append(_writer(role, result, directory))
        prologue = []
        for role, upstreams in self._initial.items():
            begin = (Upstream(self._merge(upstreams, ())),) if role == SOLUTION_SET else upstreams
            prologue.append(_writer(role, begin, directory))
        for (of, side_tag), role in invariants.items():
            writer = _writer(role, (Upstream(of, side_tag=side_tag),), directory, _get_fixed_parallelism(of))
            prologue.append(writer)
        return LoopPrograms(
            upstream_first(prologue), upstream_first(step), tuple(self._initial), tuple(invariants.values())
        )

    def _merge(self, solution: tuple[Upstream, ...], delta: tuple[Upstream, ...]) -> Transformation:
        assert self._key_selector is not None
        by_key = HashPartitioner(self._key_selector)
        inputs = [Upstream(u.transformation, by_key, u.side_tag) for u in solution]
        inputs += [Upstream(u.transformation, by_key, u.side_tag, 1) for u in delta]
        factory = partial(KeyedMergeOperator, self._key_selector)
        return Transformation("Solution Set", factory, tuple(inputs), is_stateful=True)


def operator_id_of_role(role: str) -> str:
    """Return the operator id of the source that reads the data of a role."""
    return operator_id_of_uid(f"penstock iteration: {role}")


def directory_of_role(directory: str, role: str) -> str:
    """Return the directory for the data of a role."""
    return f"{directory}/{role.partition(':')[0].replace(' ', '-')}"


def check_bounded(upstreams: Iterable[Upstream], operation: str) -> None:
    """Raise `ConfigurationError` if a source of the streams is unbounded; the error names `operation`."""
    for transformation in upstream_first(upstream.transformation for upstream in upstreams):
        source = transformation.source
        if source is not None and source.boundedness is not Boundedness.BOUNDED:
            raise ConfigurationError(
                f"{operation} works on bounded data only, but the source {transformation.display_name!r} never ends: "
                "bound "
                "it"
            )


def check_outside_of_loops(program: Iterable[Transformation]) -> None:
    """Raise `ConfigurationError` if a program other than a step reads the data of a superstep."""
    for transformation in program:
        for upstream in transformation.inputs:
            if isinstance(upstream.transformation, IterationHead):
                raise ConfigurationError(
                    f"{transformation.display_name!r} reads {upstream.transformation.display_name!r}, the data of a "
                    "superstep, but the loop was not closed, or its output is not part of what close_with() received: "
                    "a step has no sinks, and only the result of close_with() leaves a loop"
                )


def _get_fixed_parallelism(transformation: Transformation) -> int | None:
    """Return the parallelism for writing and reading a transformation's output as files.

    With it, writing needs no redistribution, and `forward()` from the files keeps its meaning.
    """
    return transformation.parallelism or (1 if transformation.parallelism_limit == 1 else None)


def _reader(role: str, of: Transformation, parallelism: int | None) -> Transformation:
    source = CachedSource("")  # a placeholder: each superstep has its own source with the same reader
    return Transformation(
        of.kind,
        partial(SourceOperator, source, WatermarkStrategy.no_watermarks()),
        name=of.name,
        uid=f"penstock iteration: {role}",
        parallelism=parallelism,
        max_parallelism=of.max_parallelism,
        is_stateful=True,
        source=source,
        output_type=of.output_type,
    )


def _writer(
    role: str, upstreams: tuple[Upstream, ...], directory: str, parallelism: int | None = None
) -> Transformation:
    of = {upstream.transformation for upstream in upstreams}
    if parallelism is None and len(of) == 1:
        parallelism = _get_fixed_parallelism(next(iter(of)))
    tail = Transformation("Iteration Tail", partial(TailOperator, role), upstreams, parallelism=parallelism)
    sink = JobCachingSink(directory_of_role(directory, role))
    factory = partial(SinkOperator, sink)
    inputs = (Upstream(tail),)
    return Transformation("Iteration Sink", factory, inputs, parallelism=parallelism, is_stateful=True, sink=sink)
