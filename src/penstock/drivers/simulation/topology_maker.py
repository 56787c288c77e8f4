"""Random jobs with one right answer.

Stages are combined only so that the final output does not depend on the order in which records of different channels
meet. So a plain computation over all records, stage by stage, gives the right output.
"""

from __future__ import annotations

import random

from penstock.drivers.simulation.calls import draw_calls
from penstock.drivers.simulation.connectors import SimulatedSource
from penstock.drivers.simulation.topology import STATELESS, Stage, Topology

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
