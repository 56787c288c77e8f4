"""Random job graphs, and what they must give whatever happens on the way.

A job is a list of stages, each reading earlier ones. Only such stages are put together that the final output does not
depend on the order in which records of different channels meet: so a plain computation over all records, stage by
stage, gives the one right answer.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock.common.configuration import Configuration
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.core.job.job_graph import JobGraph
from penstock.core.operators.aligned_window import AlignedWindowOperator
from penstock.core.operators.co_process import KeyedCoProcessOperator
from penstock.core.operators.keyed_reduce import KeyedReduceOperator
from penstock.core.operators.process import KeyedProcessOperator
from penstock.core.operators.session_window import SessionWindowOperator
from penstock.core.operators.sink import SinkOperator
from penstock.core.operators.source import SourceOperator
from penstock.core.operators.stateless import FilterOperator, FlatMapOperator, MapOperator
from penstock.core.operators.window_contents import AggregatingContents, ListContents, ProcessResult
from penstock.core.task.partitioners import (
    BroadcastPartitioner,
    ForwardPartitioner,
    HashPartitioner,
    Partitioner,
    RebalancePartitioner,
)
from penstock.core.windowing import EventTimeSessionWindows, SlidingEventTimeWindows, TumblingEventTimeWindows
from penstock.drivers.simulation import functions
from penstock.drivers.simulation.connectors import JITTER_MS, SimulatedSink, SimulatedSource
from penstock.plan.job_graph import build_job_graph
from penstock.plan.transformation import Transformation, Upstream

STATELESS = ("map", "filter", "flat_map")
TOTALS = ("buckets", "tumbling", "sliding", "session")
KEYED = ("reduce", *TOTALS)
VERTICES_MAX = 5


@dataclass
class Stage:
    """One operator. `inputs` are (stage, partitioning); `is_timed`: its output's timestamps do not depend on order.

    `order` names the records between which the output keeps order: "split" those of a split with the same key,
    "count" running counts of a key; None where nothing is promised.
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

    @property
    def has_two_inputs(self) -> bool:
        """Whether its inputs are those of a two-input operator, rather than a union."""
        return self.kind == "buckets" and len(self.inputs) > 1 and self.parallelism % 2 == 0

    def __str__(self) -> str:
        inputs = "+".join(f"{partitioning}({index})" for index, partitioning in self.inputs)
        return f"{self.kind}[{self.parallelism}]{' <- ' if inputs else ''}{inputs}"


@dataclass
class Topology:
    """A job's stages, upstream before downstream."""

    world: str
    keys: int
    stages: list[Stage]

    def __str__(self) -> str:
        return "; ".join(f"{i}:{stage}" for i, stage in enumerate(self.stages))

    def job_graph(self, configuration: Configuration) -> JobGraph:
        """As the job master takes it."""
        made: list[Transformation] = []
        for index, stage in enumerate(self.stages):
            upstreams = tuple(
                Upstream(made[i], _partitioner(name), input_index=number % 2 if stage.has_two_inputs else 0)
                for number, (i, name) in enumerate(stage.inputs)
            )
            made.append(self._transformation(index, stage, upstreams))
        return build_job_graph(made, configuration, self.world)

    def _transformation(self, index: int, stage: Stage, upstreams: tuple[Upstream, ...]) -> Transformation:
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
            sink = SimulatedSink(self.world, f"sink-{index}")
            factory = partial(SinkOperator, sink)
        else:
            factory = self._factory(stage)
        return Transformation(
            stage.kind,
            factory,
            upstreams,
            name=f"{stage.kind}-{index}",
            uid=f"stage-{index}",
            parallelism=stage.parallelism,
            is_stateful=stage.kind not in STATELESS,
            source=source,
            sink=sink,
        )

    def _factory(self, stage: Stage) -> Any:
        world, key_of = self.world, functions.key_of
        match stage.kind:
            case "map":
                return partial(MapOperator, functions.Map(world, self.keys))
            case "count":
                return partial(MapOperator, functions.Map(world, None))
            case "filter":
                return partial(FilterOperator, functions.Filter(world))
            case "flat_map":
                return partial(FlatMapOperator, functions.FlatMap(world, self.keys))
            case "reduce":
                return partial(KeyedReduceOperator, functions.Sum(world), key_of)
            case "buckets" if stage.has_two_inputs:
                function = functions.Buckets(world, stage.size_ms or None)
                return partial(KeyedCoProcessOperator, function, "process", key_of, key_of)
            case "buckets":
                return partial(KeyedProcessOperator, functions.Buckets(world, stage.size_ms or None), key_of)
        contents: Any = ListContents() if stage.keeps_records else AggregatingContents(functions.SumAndCount())
        result = ProcessResult(functions.WindowTotal(world), stage.keeps_records)
        operator: Any = SessionWindowOperator if stage.kind == "session" else AlignedWindowOperator
        return partial(operator, key_of, _windows(stage), contents, result, stage.lateness_ms)


def _source_operator(source: SimulatedSource, strategy: WatermarkStrategy) -> SourceOperator:
    return SourceOperator(source, strategy)


def _partitioner(name: str) -> Partitioner:
    match name:
        case "hash":
            return HashPartitioner(functions.key_of)
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


class TopologyMaker:
    """Draws a job."""

    def __init__(self, chance: random.Random, world: str, is_exactly_once: bool) -> None:
        self._chance = chance
        self._world = world
        self._is_exactly_once = is_exactly_once
        self._keys = chance.choice((2, 4, 7))
        # A watermark passes idle channels by, so what comes from them later may be late, which is no longer determined
        # by the records: sources become idle only in jobs of single channels, or in jobs without event time.
        self._has_idleness = chance.random() < 0.25
        self._is_single = self._has_idleness and chance.random() < 0.6
        self._has_event_time = self._is_single or not self._has_idleness
        self._stages: list[Stage] = []
        #: stages whose output nobody reads yet
        self._open: list[int] = []

    def make(self) -> Topology:
        """A job of one or two sources, some stages, and one or two sinks."""
        chance = self._chance
        for source in range(1 if self._is_single or chance.random() < 0.6 else 2):
            self._add_source(source)
        for _ in range(chance.randint(0, VERTICES_MAX - 2)):
            self._add_stage()
        if len(self._open) > 1 and not self._is_single and chance.random() < 0.6:
            self._add("sink", tuple(self._open), self._parallelism())
        else:
            for index in list(self._open):
                self._add("sink", (index,), self._parallelism())
        return Topology(self._world, self._keys, self._stages)

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
            kind = "map"  # what these give depends on the number, and a total that counts a record twice is another one
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
            self._open.append(inputs[0])  # fan out: somebody else may read the same stream

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
