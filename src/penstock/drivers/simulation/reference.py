"""The right answer of a simulated job: a plain computation, stage by stage, over all records at once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from penstock.drivers.simulation import functions, shared_state
from penstock.drivers.simulation.connectors import record_at
from penstock.drivers.simulation.topology import Stage, Topology

Timed = tuple[Any, int]  # record, timestamp (ms)
#: (source, split) to how many of its records there were, where it was not all.
Consumed = Mapping[tuple[int, int], int]


def outputs(topology: Topology, consumed: Consumed = MappingProxyType({})) -> dict[str, Counter[Any]]:
    """What each sink must have, when so much was read."""
    results: list[list[Timed]] = []
    sinks: dict[str, Counter[Any]] = {}
    for index, stage in enumerate(topology.stages):
        arriving: list[Timed] = []
        for upstream, partitioning in stage.inputs:
            arriving += results[upstream] * (stage.parallelism if partitioning == "broadcast" else 1)
        if stage.kind == "rules":
            results.append(_ruled(topology, stage, results))
        else:
            results.append(_stage(stage, arriving, topology.keys, consumed))
        if stage.kind == "sink":
            sinks[f"sink-{index}"] = Counter(record for record, _ in arriving)
    return sinks


def _ruled(topology: Topology, stage: Stage, results: list[list[Timed]]) -> list[Timed]:
    (records, _), (source, _) = stage.inputs
    splits = topology.rules_of(stage).splits
    count, split_records = len(splits) * splits[0].stop, splits[0].stop
    known = {shared_state.rule_number(record, split_records): record[2] for record, _ in results[source]}
    return [
        (shared_state.ruled(record, known.get(shared_state.rule_of(record, count))), t)
        for record, t in results[records]
    ]


def _stage(stage: Stage, arriving: list[Timed], keys: int, consumed: Consumed) -> list[Timed]:
    match stage.kind:
        case "source":
            assert stage.source is not None
            return [
                record_at(s, p, stage.source.keys)
                for s in stage.source.splits
                for p in range(consumed.get((s.source, s.index), s.stop))
            ]
        case "labels":
            return [(shared_state.labelled(record), t) for record, t in arriving]
        case "map":
            return [(functions.mapped(record, keys), t) for record, t in arriving]
        case "count":
            return [(functions.counted(record), t) for record, t in arriving]
        case "filter":
            return [(record, t) for record, t in arriving if functions.is_kept(record)]
        case "flat_map":
            return [(out, t) for record, t in arriving for out in functions.expanded(record, keys)]
        case "sink":
            return []
    by_key: dict[Any, list[Timed]] = defaultdict(list)
    for record, t in arriving:
        by_key[record[0]].append((record, t))
    return [result for key, records in by_key.items() for result in _keyed(stage, key, records)]


def _keyed(stage: Stage, key: Any, records: list[Timed]) -> list[Timed]:
    if stage.kind == "reduce":
        return [((key, "count", i + 1), t) for i, (_, t) in enumerate(records)]
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    if stage.kind == "session":
        groups = _sessions(records, stage.size_ms + 1)
    for record, t in records if stage.kind != "session" else ():
        if stage.kind == "buckets":
            starts = [functions.bucket_end(t, stage.size_ms or None)]
        else:
            slide = stage.size_ms if stage.kind == "tumbling" else stage.size_ms // 2
            starts = list(range(t - (t - functions.WINDOW_OFFSET_MS) % slide, t - stage.size_ms, -slide))
        for start in starts:
            groups[(start, start if stage.kind == "buckets" else start + stage.size_ms)].append(record[2])
    if stage.kind == "buckets":
        ends = sorted(groups)
        return [((key, ("bucket", e[0], i + 1), sum(groups[e])), e[0]) for i, e in enumerate(ends)]
    return [
        ((key, ("window", start, end, len(numbers)), sum(numbers)), end - 1) for (start, end), numbers in groups.items()
    ]


def _sessions(records: list[Timed], gap_ms: int) -> dict[tuple[int, int], list[int]]:
    sessions: dict[tuple[int, int], list[int]] = {}
    start = end = 0
    numbers: list[int] = []
    for record, t in sorted(records, key=lambda timed: timed[1]):
        if numbers and t <= end:
            numbers.append(record[2])
        else:
            if numbers:
                sessions[(start, end)] = numbers
            start, numbers = t, [record[2]]
        end = t + gap_ms
    if numbers:
        sessions[(start, end)] = numbers
    return sessions
