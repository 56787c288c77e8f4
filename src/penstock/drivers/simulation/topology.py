"""Simulated jobs: a list of stages, each reading earlier ones, and the job graph that it describes.

`TopologyMaker` draws random jobs with one right answer. Stages are combined only so that the final output does not
depend on the order in which records of different channels meet. So a plain computation over all records, stage by
stage, gives the right output.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock.base.configuration import Configuration
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.drivers.simulation import functions
from penstock.drivers.simulation.connectors import JITTER_MS, SimulatedSink, SimulatedSource
from penstock.drivers.simulation.functions import Calls, LabelOperator, RuleOperator, asynchronous, draw_calls
from penstock.plan.job_graph import build_job_graph
from penstock.plan.transformation import Transformation, Upstream
from penstock.runtime.connector import Sink
from penstock.runtime.graph import JobGraph
from penstock.runtime.operators.connector import SinkOperator, SourceOperator
from penstock.runtime.operators.keyed.aggregates import KeyedReduceOperator
from penstock.runtime.operators.record.process import KeyedCoProcessOperator, KeyedProcessOperator
from penstock.runtime.operators.record.stateless import FilterOperator, FlatMapOperator, MapOperator
from penstock.runtime.operators.window.aligned import AlignedWindowOperator, SessionWindowOperator
from penstock.runtime.operators.window.base import AggregatingContents, ListContents, ProcessResult
from penstock.runtime.task.channels import result_partition
from penstock.runtime.windowing import EventTimeSessionWindows, SlidingEventTimeWindows, TumblingEventTimeWindows

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


def _partitioner(name: str) -> result_partition.Partitioner:
    match name:
        case "hash":
            return result_partition.HashPartitioner(functions.select_key)
        case "broadcast":
            return result_partition.BroadcastPartitioner()
        case "forward":
            return result_partition.ForwardPartitioner()
    return result_partition.RebalancePartitioner()


def _windows(stage: Stage) -> Any:
    if stage.kind == "tumbling":
        return TumblingEventTimeWindows(stage.size_ms, functions.WINDOW_OFFSET_MS)
    if stage.kind == "sliding":
        return SlidingEventTimeWindows(stage.size_ms, stage.size_ms // 2, functions.WINDOW_OFFSET_MS)
    return EventTimeSessionWindows(stage.size_ms + 1)


TOTALS = ("buckets", "tumbling", "sliding", "session")
KEYED = ("reduce", *TOTALS)
VERTICES_MAX = 5


class TopologyMaker:
    """Draws a job. `ends` draws the parts that end long before others; without it, none do."""

    def __init__(self, chance: random.Random, world: str, is_exactly_once: bool, ends: random.Random | None) -> None:
        self._chance = chance
        self._ends = ends
        self._world = world
        self._is_exactly_once = is_exactly_once
        self._keys = chance.choice((2, 4, 7))
        # A watermark does not wait for idle channels, so their later records may be late, and the records alone no
        # longer determine that. Sources therefore become idle only in jobs of single channels or without event time.
        self._has_idleness = chance.random() < 0.25
        self._is_single = self._has_idleness and chance.random() < 0.6
        self._has_event_time = self._is_single or not self._has_idleness
        self._stages: list[Stage] = []
        #: stages whose output is not read yet
        self._open: list[int] = []

    def make(self) -> Topology:
        """Draw a job of one or two sources, some stages, and one or two sinks."""
        chance = self._chance
        for source in range(1 if self._is_single or chance.random() < 0.6 else 2):
            self._add_source(source)
            if self._ends is not None:
                self._let_parts_end(self._ends, self._stages[-1])
        for _ in range(chance.randint(0, VERTICES_MAX - 2)):
            self._add_stage()
        if len(self._open) > 1 and not self._is_single and chance.random() < 0.6:
            self._add("sink", tuple(self._open), self._parallelism())
        else:
            for index in list(self._open):
                self._add("sink", (index,), self._parallelism())
        for index, stage in enumerate(self._stages):
            if stage.kind in ("map", "flat_map"):
                stage.calls = draw_calls(self._world, stage.order is not None, index)
        return Topology(self._world, self._keys, self._stages, not self._is_single)

    def _parallelism(self) -> int:
        return 1 if self._is_single else self._chance.choice((1, 1, 2, 2, 3, 4))

    def _add_source(self, number: int) -> None:
        chance = self._chance
        splits, records = chance.randint(1, 5), chance.randint(3, 20)
        source = SimulatedSource(self._world, number, splits, records, self._keys, chance.random() < 0.6)
        idleness = chance.choice((5, 20, 60)) if self._has_idleness and chance.random() < 0.7 else None
        self._stages.append(
            Stage("source", self._parallelism(), (), order="split", source=source, idleness_ms=idleness)
        )
        self._open.append(len(self._stages) - 1)

    def _let_parts_end(self, ends: random.Random, source: Stage) -> None:
        """Let some readers end early, make a source short or slow, and add operators that remember ended parts."""
        assert source.source is not None
        simulated_source = source.source
        number = simulated_source.splits[0].source
        if number > 0 or (source.parallelism == 1 and ends.random() < 0.1):
            simulated_source = SimulatedSource(
                self._world, number, 1, ends.randint(1, 3), self._keys, simulated_source.is_lazy
            )
        simulated_source.early = ends.choice((0.0, 0.3, 0.6))
        simulated_source.pauses = ends.choice((simulated_source.pauses, 0.3, 0.6))
        source.source = simulated_source
        if ends.random() < 0.6:
            labels = self._stages[self._add("labels", (len(self._stages) - 1,), source.parallelism)]
            labels.inputs = ((labels.inputs[0][0], "forward"),)
            labels.order = source.order
            labels.chosen = ends.randrange(source.parallelism)
        if not self._is_single and ends.random() < 0.5:
            self._add_rules(ends, len(self._stages) - 1)

    def _add_rules(self, ends: random.Random, records: int) -> None:
        """Add a stage with rules from a short source of their own; its subtasks end with the inputs that they read."""
        stages, parallelism = self._stages, self._stages[records].parallelism
        source = SimulatedSource(
            self._world, 10 + records, ends.randint(1, 2), ends.randint(1, 3), self._keys, True, pauses=0.3
        )
        stages.append(Stage("source", ends.choice((1, 1, 2)), (), source=source))
        inputs = ((records, ends.choice(("forward", "forward", "hash"))), (len(stages) - 1, "broadcast"))
        stages.append(Stage("rules", parallelism, inputs, is_timed=stages[records].is_timed))
        self._open[self._open.index(records)] = len(stages) - 1

    def _add_stage(self) -> None:
        chance = self._chance
        inputs: tuple[int, ...] = (chance.choice(self._open),)
        if len(self._open) > 1 and not self._is_single and chance.random() < 0.4:
            inputs = tuple(self._open[:2])
        is_timed = all(self._stages[i].is_timed for i in inputs)
        kinds = [*STATELESS, "reduce", "reduce"]
        if self._has_event_time:
            kinds.append("buckets")
        if is_timed and self._has_event_time:
            kinds += ["buckets", "tumbling", "sliding", "session"]
        kind = chance.choice(kinds)
        if not self._is_exactly_once and kind in ("filter", "flat_map") and self._has_totals(inputs):
            kind = "map"  # their output depends on a total, which changes if a record is counted twice
        if kind == "reduce":
            inputs = (self._add("count", inputs, self._parallelism()),)
        index = self._add(kind, inputs, self._parallelism())
        stage = self._stages[index]
        if kind in ("tumbling", "sliding", "session"):
            stage.keeps_records = chance.random() < 0.5
            stage.lateness_ms = chance.choice((0, 0, 40, 100_000))
            stage.size_ms = chance.choice((20, 60, 200))
        elif kind == "buckets":
            stage.size_ms = chance.choice((30, 100)) if is_timed else 0
        if chance.random() < 0.15 and len(self._open) < 3:
            self._open.append(inputs[0])  # fan out: another stage may read the same stream

    def _has_totals(self, inputs: tuple[int, ...]) -> bool:
        stages = [self._stages[i] for i in inputs]
        return any(s.kind in TOTALS or self._has_totals(tuple(i for i, _ in s.inputs)) for s in stages)

    def _add(self, kind: str, inputs: tuple[int, ...], parallelism: int) -> int:
        links = tuple((i, self._partitioning(kind, self._stages[i].parallelism, parallelism)) for i in inputs)
        stage = Stage(kind, parallelism, links)
        stage.is_timed = kind != "reduce" and all(self._stages[i].is_timed for i in inputs)
        stage.order = self._order(stage)
        self._stages.append(stage)
        for i in inputs:
            if i in self._open:
                self._open.remove(i)
        if kind != "sink":
            self._open.append(len(self._stages) - 1)
        return len(self._stages) - 1

    def _partitioning(self, kind: str, upstream: int, parallelism: int) -> str:
        if kind in KEYED:
            return "hash"
        names = ["hash", "hash", "rebalance"]
        if upstream == parallelism:
            names += ["forward"] * 4
        if kind == "sink" and self._chance.random() < 0.3 and upstream * parallelism <= 4:
            names.append("broadcast")
        return self._chance.choice(names)

    def _order(self, stage: Stage) -> str | None:
        if stage.kind == "reduce":
            return "count"
        if len(stage.inputs) != 1 or stage.kind not in ("map", "filter", "sink"):
            return None
        upstream, partitioning = stage.inputs[0]
        return self._stages[upstream].order if partitioning in ("hash", "forward") else None
