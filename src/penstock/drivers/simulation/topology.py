"""Simulated jobs: a list of stages, each reading earlier ones, and the job graph that it describes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock.base.configuration import Configuration
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.core.connector import Sink
from penstock.core.graph.job_graph import JobGraph
from penstock.core.operators.keyed.keyed_reduce import KeyedReduceOperator
from penstock.core.operators.record.co_process import KeyedCoProcessOperator
from penstock.core.operators.record.process import KeyedProcessOperator
from penstock.core.operators.record.stateless import FilterOperator, FlatMapOperator, MapOperator
from penstock.core.operators.sink.sink import SinkOperator
from penstock.core.operators.source.source import SourceOperator
from penstock.core.operators.window.aligned_window import AlignedWindowOperator
from penstock.core.operators.window.session_window import SessionWindowOperator
from penstock.core.operators.window.window_contents import AggregatingContents, ListContents, ProcessResult
from penstock.core.task.channels.partitioners import (
    BroadcastPartitioner,
    ForwardPartitioner,
    HashPartitioner,
    Partitioner,
    RebalancePartitioner,
)
from penstock.core.windowing import EventTimeSessionWindows, SlidingEventTimeWindows, TumblingEventTimeWindows
from penstock.drivers.simulation import functions
from penstock.drivers.simulation.calls import Calls, asynchronous
from penstock.drivers.simulation.connectors import JITTER_MS, SimulatedSink, SimulatedSource
from penstock.drivers.simulation.shared_state import LabelOperator, RuleOperator
from penstock.plan.job_graph import build_job_graph
from penstock.plan.transformation import Transformation, Upstream

STATELESS = ("map", "filter", "flat_map")
#: The kinds of stages that a changed job may add to the first job's stages.
ADDED = ("pass", "map", "tally")


@dataclass
class Stage:
    """One operator. `inputs` are (stage, partitioning); `is_timed`: its output's timestamps do not depend on order.

    `order` says which records of the output stay in order: "split", the records of a split with the same key; "count",
    the running counts of a key; None, no records. `uid` and `rank` do not change when a changed job has other stages
    upstream: ranks rise from upstream to downstream in every job of a history.
    """

    kind: str
    parallelism: int
    inputs: tuple[tuple[int, str], ...]
    size_ms: int = 0
    lateness_ms: int = 0
    keeps_records: bool = False
    is_timed: bool = True
    order: str | None = None
    source: SimulatedSource | None = None
    idleness_ms: int | None = None
    #: the subtask that stores the table of a "labels" stage
    chosen: int = 0
    uid: str = ""
    rank: float = 0.0
    #: the value of `has_two_inputs`; None to derive it
    two_inputs: bool | None = None
    #: how the calls of an asynchronous "map" or "flat_map" behave
    calls: Calls | None = None
    #: creates a sink of another kind, from the world and the uid
    make_sink: Callable[[str, str], Sink[Any]] | None = None

    @property
    def has_two_inputs(self) -> bool:
        """Whether its inputs belong to a two-input operator rather than to a union."""
        if self.two_inputs is not None:
            return self.two_inputs
        if self.kind == "rules":
            return True
        return self.kind == "buckets" and len(self.inputs) > 1 and self.parallelism % 2 == 0

    def __str__(self) -> str:
        inputs = "+".join(f"{partitioning}({index})" for index, partitioning in self.inputs)
        kind = self.kind if self.calls is None else f"asynchronous {self.kind}"
        return f"{kind}[{self.parallelism}]{' <- ' if inputs else ''}{inputs}"


@dataclass
class Topology:
    """A job's stages, upstream before downstream. `may_rescale` is False if it must consist of single channels."""

    world: str
    keys: int
    stages: list[Stage]
    may_rescale: bool = True

    def __post_init__(self) -> None:
        for index, stage in enumerate(self.stages):
            if not stage.uid:
                stage.uid = f"{'sink' if stage.kind == 'sink' else 'stage'}-{index}"
                stage.rank = float(index)

    def __str__(self) -> str:
        return "; ".join(f"{i}:{stage}" for i, stage in enumerate(self.stages))

    @property
    def is_elastic(self) -> bool:
        """Whether a job may change its parallelism while it runs; it may not where the right answer depends on it."""
        has_copies = any(s.kind == "sink" and any(name == "broadcast" for _, name in s.inputs) for s in self.stages)
        return self.may_rescale and not has_copies

    def get_rules_source(self, stage: Stage) -> SimulatedSource:
        """Return the source of the rules of a "rules" stage, which is its second input."""
        source = self.stages[stage.inputs[1][0]].source
        assert source is not None
        return source

    def job_graph(self, configuration: Configuration) -> JobGraph:
        """Build the job graph for the job master."""
        transformations: list[Transformation] = []
        for stage in self.stages:
            upstreams = tuple(
                Upstream(transformations[i], _partitioner(name), input_index=number % 2 if stage.has_two_inputs else 0)
                for number, (i, name) in enumerate(stage.inputs)
            )
            transformations.append(self._transformation(stage, upstreams))
        return build_job_graph(transformations, configuration, self.world)

    def _transformation(self, stage: Stage, upstreams: tuple[Upstream, ...]) -> Transformation:
        source = sink = None
        factory: Any
        if stage.kind == "source":
            assert stage.source is not None
            source = stage.source
            strategy = WatermarkStrategy.for_bounded_out_of_orderness(JITTER_MS)
            if stage.idleness_ms is not None:
                strategy = strategy.with_idleness(stage.idleness_ms)
            factory = partial(_source_operator, source, strategy)
        elif stage.kind == "sink":
            sink = (stage.make_sink or SimulatedSink)(self.world, stage.uid)
            factory = partial(SinkOperator, sink)
        else:
            factory = self._factory(stage)
        return Transformation(
            stage.kind,
            factory,
            upstreams,
            name=f"{stage.kind}-{stage.uid.partition('-')[2]}",
            uid=stage.uid,
            parallelism=stage.parallelism,
            is_stateful=stage.kind not in (*STATELESS, "pass") or stage.calls is not None,
            source=source,
            sink=sink,
        )

    def _factory(self, stage: Stage) -> Any:
        world, select_key = self.world, functions.select_key
        match stage.kind:
            case "map" | "flat_map" if stage.calls is not None:
                return asynchronous(world, self.keys, stage.kind, stage.calls)
            case "map":
                return partial(MapOperator, functions.Map(world, self.keys))
            case "count":
                return partial(MapOperator, functions.Map(world, None))
            case "pass":
                return partial(MapOperator, functions.Pass(world))
            case "tally":
                return partial(KeyedProcessOperator, functions.Tally(world, stage.uid), select_key)
            case "filter":
                return partial(FilterOperator, functions.Filter(world))
            case "flat_map":
                return partial(FlatMapOperator, functions.FlatMap(world, self.keys))
            case "labels":
                return partial(LabelOperator, world, stage.chosen)
            case "rules":
                splits = self.get_rules_source(stage).splits
                return partial(RuleOperator, world, len(splits) * splits[0].stop, splits[0].stop)
            case "reduce":
                return partial(KeyedReduceOperator, functions.Sum(world), select_key)
            case "buckets" if stage.has_two_inputs:
                function = functions.Buckets(world, stage.size_ms or None)
                return partial(KeyedCoProcessOperator, function, "process", select_key, select_key)
            case "buckets":
                return partial(KeyedProcessOperator, functions.Buckets(world, stage.size_ms or None), select_key)
        contents: Any = ListContents() if stage.keeps_records else AggregatingContents(functions.SumAndCount())
        result = ProcessResult(functions.WindowTotal(world), stage.keeps_records)
        operator: Any = SessionWindowOperator if stage.kind == "session" else AlignedWindowOperator
        return partial(operator, select_key, _windows(stage), contents, result, stage.lateness_ms)


def _source_operator(source: SimulatedSource, strategy: WatermarkStrategy) -> SourceOperator:
    return SourceOperator(source, strategy)


def _partitioner(name: str) -> Partitioner:
    match name:
        case "hash":
            return HashPartitioner(functions.select_key)
        case "broadcast":
            return BroadcastPartitioner()
        case "forward":
            return ForwardPartitioner()
    return RebalancePartitioner()


def _windows(stage: Stage) -> Any:
    if stage.kind == "tumbling":
        return TumblingEventTimeWindows(stage.size_ms, functions.WINDOW_OFFSET_MS)
    if stage.kind == "sliding":
        return SlidingEventTimeWindows(stage.size_ms, stage.size_ms // 2, functions.WINDOW_OFFSET_MS)
    return EventTimeSessionWindows(stage.size_ms + 1)
