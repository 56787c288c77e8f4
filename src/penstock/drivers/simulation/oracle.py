"""The expected output of a history's jobs, checks of the sinks against it, and the contents of savepoints.

`outputs_of_jobs` is a plain computation, stage by stage, over all records at once. If jobs have different programs,
each record goes through the stages of the job that read it. This holds up to the first stage that buffers records: from
there on, the programs of all jobs treat it alike.

`check_exact`, `check_order`, `check_superset` and `check_no_more` compare the sinks' output with the expected output.

`consumed` and `prepared` read a savepoint's files: source positions and prepared transactions.
"""

from __future__ import annotations

import pickle
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from types import MappingProxyType
from typing import Any

from penstock.drivers.simulation import functions
from penstock.drivers.simulation import functions as shared_state
from penstock.drivers.simulation.connectors import Split, generate_record
from penstock.drivers.simulation.disk import Disk
from penstock.drivers.simulation.outside_world import TransactionId
from penstock.drivers.simulation.topology import Stage, Topology
from penstock.runtime.operators.connector import COMMITTABLES_STATE, SPLITS_STATE
from penstock.state.snapshot import read_operator
from penstock.storage.metadata import CheckpointMetadata, StateFile, check_file

#: A record, its timestamp (ms), and the job that emitted it; None if that depends on when a stage released it.
Timed = tuple[Any, int, int | None]
#: Maps (source, split) to the number of its records, for splits not read completely.
Consumed = Mapping[tuple[int, int], int]
NOTHING: Consumed = MappingProxyType({})


@dataclass(frozen=True)
class Epoch:
    """A job and the source positions where it began; None for the sources' beginning."""

    topology: Topology
    begun_at: Consumed | None = None


def outputs(topology: Topology, consumed: Consumed = NOTHING) -> dict[str, Counter[Any]]:
    """Compute the expected records of each sink of a single job, given the consumed input."""
    return outputs_of_jobs([Epoch(topology)], consumed)


def outputs_of_jobs(epochs: Sequence[Epoch], consumed: Consumed = NOTHING) -> dict[str, Counter[Any]]:
    """Compute the expected records of each sink from all jobs together, given the input consumed in the end."""
    emitted: dict[str, list[Timed]] = {}
    sinks: dict[str, Counter[Any]] = {}
    for uid in _downwards(epochs):
        versions = [next((s for s in epoch.topology.stages if s.uid == uid), None) for epoch in epochs]
        job, stage = next((i, version) for i, version in enumerate(versions) if version is not None)
        arriving = [_arriving(epochs, versions, emitted, number) for number in range(len(stage.inputs))]
        everything = [timed for records in arriving for timed in records]
        if stage.source is not None:
            emitted[uid] = [
                (*generate_record(s, p, stage.source.keys), _reader(epochs, s, p))
                for s in stage.source.splits
                for p in range(consumed.get((s.source, s.index), s.stop))
            ]
        elif stage.kind == "rules":
            emitted[uid] = _ruled(epochs[job].topology, stage, *arriving)
        elif stage.kind == "tally":
            emitted[uid] = list(_tallied(stage, versions, everything))
        else:
            emitted[uid] = _stage(stage, everything, epochs[0].topology.keys)
        if stage.kind == "sink":
            sinks[uid] = Counter(record for record, _, _ in everything)
    return sinks


def _downwards(epochs: Sequence[Epoch]) -> Iterator[str]:
    """Return the stages of all jobs, each after its inputs in any of them."""
    upstream: dict[str, set[str]] = {}
    for stages in (epoch.topology.stages for epoch in epochs):
        for stage in stages:
            upstream.setdefault(stage.uid, set()).update(stages[number].uid for number, _ in stage.inputs)
    return iter(TopologicalSorter({uid: sorted(upstream[uid]) for uid in upstream}).static_order())


def _reader(epochs: Sequence[Epoch], split: Split, position: int) -> int:
    """Return the index of the job that read a record."""
    key = split.source, split.index
    begun = [0 if e.begun_at is None else e.begun_at.get(key, split.stop) for e in epochs]
    return max(job for job, start in enumerate(begun) if start <= position)


def _arriving(
    epochs: Sequence[Epoch], versions: Sequence[Stage | None], emitted: dict[str, list[Timed]], number: int
) -> list[Timed]:
    """Return the records arriving at one input of a stage, from the upstream stage that each job reads there."""
    arrivals: list[Timed] = []
    for job, (epoch, stage) in enumerate(zip(epochs, versions, strict=True)):
        if stage is not None:
            upstream, partitioning = stage.inputs[number]
            copies = stage.parallelism if partitioning == "broadcast" and stage.kind == "sink" else 1
            default = len(epochs) - 1
            records = emitted[epoch.topology.stages[upstream].uid]
            arrivals += [t for t in records if (default if t[2] is None else t[2]) == job] * copies
    return arrivals


def _ruled(topology: Topology, stage: Stage, records: list[Timed], rules: list[Timed]) -> list[Timed]:
    splits = topology.get_rules_source(stage).splits
    count, split_records = len(splits) * splits[0].stop, splits[0].stop
    known = {shared_state.rule_number(record, split_records): record[2] for record, _, _ in rules}
    return [
        (shared_state.ruled(record, known.get(shared_state.select_rule(record, count))), t, None)
        for record, t, _ in records
    ]


def _tallied(stage: Stage, versions: Sequence[Stage | None], arriving: list[Timed]) -> Iterator[Timed]:
    """Yield the records and a count per key, which restarts after a job without such a stage."""
    counts = Counter[Any]()
    for number, version in enumerate(versions):
        if version is None:
            counts.clear()
        for record, t, job in arriving:
            if job == number:
                counts[record[0]] += 1
                yield record, t, job
                yield functions.tallied(record[0], stage.uid, counts[record[0]]), t, job


def _stage(stage: Stage, arriving: list[Timed], keys: int) -> list[Timed]:
    match stage.kind:
        case "pass":
            return arriving
        case "labels":
            return [(shared_state.labelled(record), t, job) for record, t, job in arriving]
        case "map":
            return [(functions.mapped(record, keys), t, job) for record, t, job in arriving]
        case "count":
            return [(functions.counted(record), t, job) for record, t, job in arriving]
        case "filter":
            return [timed for timed in arriving if functions.is_kept(timed[0])]
        case "flat_map":
            return [(out, t, job) for record, t, job in arriving for out in functions.expanded(record, keys)]
        case "sink":
            return []
    by_key: dict[Any, list[Timed]] = defaultdict(list)
    for timed in arriving:
        by_key[timed[0][0]].append(timed)
    if stage.kind == "reduce":
        return [result for key, records in by_key.items() for result in _counts(key, records)]
    return [
        (*result, None)
        for key, records in by_key.items()
        for result in _keyed(stage, key, [(record, t) for record, t, _ in records])
    ]


def _counts(key: Any, records: list[Timed]) -> list[Timed]:
    jobs = [job for _, _, job in records if job is not None]
    # The job that read a record emitted its count, if the job is known for all records.
    emitters: list[int | None] = [*sorted(jobs)] if len(jobs) == len(records) else [None] * len(records)
    return [((key, "count", i + 1), t, emitters[i]) for i, (_, t, _) in enumerate(records)]


def _keyed(stage: Stage, key: Any, records: list[tuple[Any, int]]) -> list[tuple[Any, int]]:
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


def compute_windows(stage: Stage, records: Sequence[tuple[Any, int]]) -> list[Any]:
    """Compute a window stage's results for records with their timestamps (ms), excluding late ones."""
    by_key: dict[Any, list[tuple[Any, int]]] = defaultdict(list)
    for record, t in records:
        by_key[record[0]].append((record, t))
    return [result for key, timed in by_key.items() for result, _ in _keyed(stage, key, timed)]


def _sessions(records: list[tuple[Any, int]], gap_ms: int) -> dict[tuple[int, int], list[int]]:
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


SHOWN_MAX = 6


def check_exact(sink: str, expected: Counter[Any], records: Iterable[Any]) -> str | None:
    """Check that the sink has exactly the expected records, each as often as expected."""
    actual = Counter(records)
    if actual == expected:
        return None
    lost, more = expected - actual, actual - expected
    return (
        f"output: {sink} has {actual.total()} records instead of {expected.total()}; {lost.total()} lost: "
        f"{_some(lost)}; {more.total()} too many: {_some(more)}"
    )


def check_no_more(sink: str, expected: Counter[Any], records: Iterable[Any]) -> str | None:
    """Check that the sink has no unexpected record, and none too often."""
    more = Counter(records) - expected
    return f"output: {sink} has {more.total()} records too many: {_some(more)}" if more else None


def check_superset(
    sink: str, expected: Counter[Any], records: Iterable[Any], has_early_rules: bool = False
) -> str | None:
    """Check that nothing is lost. Totals may count records more than once, so totals above the expected ones are
    accepted.

    `has_early_rules`: whether records may have met rules read after the barrier of the savepoint that defines the
    input. Then their numbers mean nothing, nor do the keys and copies derived from them.
    """
    if has_early_rules:
        expected = Counter(set(map(_origin_of_record, expected)))
        records = map(_origin_of_record, records)
    actual = Counter(records)
    lost = expected - actual
    totals: dict[Any, list[Any]] = defaultdict(list)
    for record in actual:
        totals[_group(record)].append(record)
    lost = Counter({r: n for r, n in lost.items() if not any(_covers(a, r) for a in totals[_group(r)])})
    return f"lost: {sink} lacks {lost.total()} of {expected.total()} records: {_some(lost)}" if lost else None


def check_order(sink: str, stage: Stage, records: Iterable[Any]) -> str | None:
    """Check that records of one split and key, or running counts of a key, arrive in order."""
    if stage.order is None:
        return None
    last: dict[Any, int] = {}
    for key, origin, number in records:
        if origin[0] == "tally":
            continue
        group, rank = (key, number) if stage.order == "count" else ((key, origin[:2]), origin[2])
        if last.get(group, -1) >= rank:
            return f"order: {sink} has {group} {rank} after {last[group]}"
        last[group] = rank
    return None


def _origin_of_record(record: Any) -> Any:
    key, origin, number = record
    return (0, origin, 0) if isinstance(origin, tuple) and isinstance(origin[0], int) else (key, origin, number)


def _group(record: Any) -> Any:
    key, origin, _ = record
    return key, origin[0] if isinstance(origin, tuple) else origin


def _covers(actual: Any, expected: Any) -> bool:
    """Return whether a total counts at least as much as the expected one."""
    origin, expected_origin = actual[1], expected[1]
    if (
        not isinstance(expected_origin, tuple)
        or expected_origin[0] not in ("window", "bucket")
        or actual[2] < expected[2]
    ):
        return False
    if expected_origin[0] == "bucket":
        return bool(origin[1] == expected_origin[1])
    # A session that counts records twice may have merged two expected ones.
    return bool(origin[1] <= expected_origin[1] and origin[2] >= expected_origin[2] and origin[3] >= expected_origin[3])


def _some(records: Counter[Any]) -> str:
    return ", ".join(repr(r) for r in sorted(records, key=repr)[:SHOWN_MAX]) or "none"


def consumed(disk: Disk, metadata: CheckpointMetadata) -> dict[tuple[int, int], int]:
    """Return how many records were read from each split that was not read to its end."""
    left: dict[tuple[int, int], int] = {}
    for operator in metadata.operators:
        splits: list[Split] = []
        if operator.coordinator is not None:
            splits += pickle.loads(_read(disk, operator.coordinator))
        for subtask in operator.subtasks.values():
            for handle in subtask.operator.get(SPLITS_STATE, ()):
                splits += read_operator(_read(disk, handle.file))
        for split in splits:
            left[(split.source, split.index)] = split.position
    return left


def prepared(disk: Disk, metadata: CheckpointMetadata) -> list[TransactionId]:
    """Return the transactions to be committed."""
    handles = (
        handle
        for operator in metadata.operators
        for subtask in operator.subtasks.values()
        for handle in subtask.operator.get(COMMITTABLES_STATE, ())
    )
    return [transaction_id for handle in handles for transaction_id in read_operator(_read(disk, handle.file))]


def _read(disk: Disk, file: StateFile) -> bytes:
    if file.data is not None:
        return file.data
    assert file.path is not None
    return check_file(file, disk.files.get(file.path, b""))


def is_partly_finished(metadata: CheckpointMetadata) -> bool:
    """Return whether some subtasks had finished at that point and others had not."""
    finished = sum(len(operator.finished) for operator in metadata.operators)
    return 0 < finished < sum(operator.parallelism for operator in metadata.operators)
