"""Whole programs whose parallelism changes from one job to the next, with both state backends (D4, G5, H2, H4).

Each test is a row of jobs: all but the last are ended in the middle, and each begins, at another parallelism, from what
the one before left: a savepoint, or a checkpoint that outlived a cancelled job. What all of them committed together is
the output of one job that nobody ended. Everything runs in virtual time, so a row is the same at every run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.datastream.places import Places
from tests.jobs import BUCKETS, JOBS, Count, Job, same
from tests.spec.virtual_job import LEDGER, LedgerSink, VirtualJob, clear_ledger, environment

from penstock.base.errors import JobExecutionError
from penstock.base.job import JobStatus
from penstock.base.output_tag import OutputTag
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.file.source import FileSource
from penstock.datastream import DataStream, RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.datastream.functions import KeyedBroadcastProcessFunction, KeyedProcessFunction
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.formats.file_format import TextLineFormat
from penstock.runtime.connector import Source
from penstock.state.snapshot import read_operator
from penstock.storage.file_store import FileCheckpointStore
from penstock.storage.metadata import CHANNEL_MODE, CheckpointMetadata, parse_channel

pytestmark = pytest.mark.slow

CHAINS = [(1, 4, 2, 3, 1), (4, 3, 1, 2)]
BACKENDS = {"heap": ("hashmap",), "rocksdb": ("rocksdb",), "by turns": ("rocksdb", "hashmap")}
SMALL_STEPS: Any = {"penstock.source.batch-records": 2, "penstock.network.buffer-records": 3}
#: The test itself says when a checkpoint is taken; state of more than a few bytes lies in files.
RETAINED: Any = {
    "execution.checkpointing.interval": "1 h",
    "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    "execution.checkpointing.data-inline-threshold": "100 b",
}
#: A task takes one buffer a turn, and the source fills sixteen: consumers fall behind as far as their credit goes.
SLOW_CONSUMERS: Any = {
    "execution.checkpointing.unaligned.enabled": "true",
    "penstock.source.batch-records": 16,
    "penstock.network.buffer-records": 1,
}
#: How long a job runs that is ended: long enough for a part of the records.
TURNS = 26


@pytest.fixture(autouse=True)
def nothing_committed() -> None:
    clear_ledger()


def shapes(chain: Sequence[int], backends: Sequence[str]) -> list[tuple[int, str]]:
    """Parallelism and backend of each job."""
    return list(zip(chain, itertools.cycle(backends), strict=False))


def begin(job: Job, shape: tuple[int, str], places: Places, path: str | None, options: Any) -> VirtualJob:
    """The next job of a row, from what the one before left."""
    parallelism, backend = shape
    settings = {
        "state.backend.type": backend,
        "state.backend.rocksdb.localdir": places.local / "rocksdb",
        "execution.state-recovery.path": path,
        **options,
    }
    env = environment(parallelism, **settings)
    job.build(env).sink_to(LedgerSink("out")).uid("sink")
    return VirtualJob(env)


def stop(job: VirtualJob, places: Places) -> str:
    """Stop it in the middle; the savepoint's path."""
    asked: list[Any] = []
    job.when(lambda: job.turns >= TURNS, lambda: asked.append(job.stop_with_savepoint(False, str(places.store / "s"))))
    assert job.run() is JobStatus.FINISHED, job.failure()
    path: str = asked[0].result(0)
    return path


def cancel(job: VirtualJob, places: Places) -> tuple[str, CheckpointMetadata]:
    """Cancel it in the middle, as soon as its second checkpoint is there; where that lies, and what it says."""

    def take() -> None:
        """Ask until it can be taken: not while what was in flight is being processed."""
        asked = job.trigger_checkpoint()
        job.when(asked.done, lambda: None if asked.result() else take())

    job.when(lambda: job.turns >= TURNS // 2, take)
    job.when(lambda: job.turns >= TURNS and job.checkpoints, take)
    job.when(lambda: len(job.checkpoints) == 2, job.cancel)
    assert job.run() is JobStatus.CANCELED, job.failure()
    kept = job.checkpoints[-1]
    return str(places.store / "c" / kept.job_id / f"chk-{kept.checkpoint_id}"), kept


def finish(job: VirtualJob, places: Places) -> None:
    """Let the last one of a row come to its end; none has left files of RocksDB's behind."""
    assert job.run() is JobStatus.FINISHED, job.failure()
    assert list(places.local.glob("rocksdb/*")) == []


def in_flight(metadata: CheckpointMetadata, places: Places) -> int:
    """How many records a checkpoint holds that were between two tasks."""
    store = FileCheckpointStore(str(places.store / "c"), metadata.job_id, 0)
    return sum(
        len(item[0])
        for operator in metadata.operators
        for subtask in operator.subtasks.values()
        for handles in subtask.operator.values()
        for handle in handles
        if handle.mode == CHANNEL_MODE
        for item in read_operator(store.read(handle.file))
        if isinstance(item, tuple)
    )


def readers_of_what_is_in_flight(metadata: CheckpointMetadata) -> set[str]:
    """To which operators, by uid or name, the records go that were between two tasks."""
    names = {operator.operator_id: operator.uid or operator.name for operator in metadata.operators}
    edges = {
        metadata.edges[parse_channel(name).edge]
        for operator in metadata.operators
        for subtask in operator.subtasks.values()
        for name, handles in subtask.operator.items()
        if handles[0].mode == CHANNEL_MODE
    }
    return {names[edge.split(">")[1].split(":")[0]] for edge in edges}


def native_files(metadata: CheckpointMetadata) -> int:
    """How many of RocksDB's own files a checkpoint has."""
    return sum(
        len(handle.files)
        for operator in metadata.operators
        for subtask in operator.subtasks.values()
        for handle in subtask.native
    )


# --- savepoints -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backends", BACKENDS.values(), ids=BACKENDS)
@pytest.mark.parametrize("chain", CHAINS, ids=str)
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_stopped_and_resumed(job: Job, chain: tuple[int, ...], backends: tuple[str, ...], places: Places) -> None:
    """H2, D4: from savepoints, at any parallelism, and in either backend whichever one wrote them."""
    *ended, last = shapes(chain, backends)
    options = {**SMALL_STEPS, "execution.checkpointing.interval": None}
    path: str | None = None
    for shape in ended:
        path = stop(begin(job, shape, places, path, options), places)
    assert len(LEDGER.get("out", ())) < len(job.expected())
    finish(begin(job, last, places, path, options), places)
    assert sorted(LEDGER["out"]) == job.expected()


# --- retained checkpoints -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("chain", CHAINS, ids=str)
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
@pytest.mark.parametrize("mode", ["aligned", "unaligned"])
def test_cancelled_and_begun_from_its_checkpoint(
    mode: str, job: Job, chain: tuple[int, ...], backend: str, places: Places
) -> None:
    """H4, D4, G5: from checkpoints that outlived their jobs. Records in flight are partitioned anew, and RocksDB's own
    files are cut by key groups."""
    *ended, last = shapes(chain, (backend,))
    options = {**RETAINED, **(SLOW_CONSUMERS if mode == "unaligned" else SMALL_STEPS)}
    options["execution.checkpointing.dir"] = places.store / "c"
    path: str | None = None
    for shape in ended:
        path, kept = cancel(begin(job, shape, places, path, options), places)
        assert (in_flight(kept, places) > 0) == (mode == "unaligned")
        assert (native_files(kept) > 0) == (backend == "rocksdb")
    assert len(LEDGER.get("out", ())) < len(job.expected())
    finish(begin(job, last, places, path, options), places)
    assert sorted(LEDGER["out"]) == job.expected()


@pytest.mark.parametrize("chain", CHAINS, ids=str)
def test_a_checkpoint_of_the_heap_goes_on_in_rocksdb(chain: tuple[int, ...], places: Places) -> None:
    """D4, G5, H4: the heap's checkpoints have files that both backends read, with records in flight beside them."""
    *ended, last = shapes(chain, ("hashmap",))
    options = {**RETAINED, **SLOW_CONSUMERS, "execution.checkpointing.dir": places.store / "c"}
    path: str | None = None
    for shape in ended:
        path, kept = cancel(begin(BUCKETS, shape, places, path, options), places)
        assert in_flight(kept, places) > 0
    finish(begin(BUCKETS, (last[0], "rocksdb"), places, path, options), places)
    assert sorted(LEDGER["out"]) == BUCKETS.expected()


@pytest.mark.parametrize("parallelism", [1, 4])
@pytest.mark.parametrize("mode", [RuntimeExecutionMode.MICRO_BATCH, RuntimeExecutionMode.BATCH])
def test_records_in_flight_do_not_go_into_epochs(mode: RuntimeExecutionMode, parallelism: int, places: Places) -> None:
    """G5, H4: the job is refused before it reads anything, at the same parallelism as at a lower one."""
    options = {**RETAINED, **SLOW_CONSUMERS, "execution.checkpointing.dir": places.store / "c"}
    path, kept = cancel(begin(BUCKETS, (4, "hashmap"), places, None, options), places)
    assert in_flight(kept, places) > 0
    settings: Any = {"execution.target": "local", "execution.state-recovery.path": path}
    if mode is RuntimeExecutionMode.BATCH:
        settings["execution.batch.savepoint-path"] = places.store / "filled"
    env = environment(parallelism, **settings).set_runtime_mode(mode)
    before = list(LEDGER.get("out", ()))
    BUCKETS.build(env).sink_to(LedgerSink("out")).uid("sink")
    with pytest.raises(JobExecutionError, match="micro-batch execution cannot take over the records in flight"):
        env.execute()
    assert LEDGER.get("out", []) == before
    assert not (places.store / "filled").exists()


# --- broadcasts ------------------------------------------------------------------------------------------------------


RULES, WAITING = MapStateDescriptor("rules"), ListStateDescriptor("waiting")
RULE_COUNT, RULED, SORTS = 600, 1_500, 60


def sort_of(number: int) -> int:
    return number % SORTS


class Pairs(KeyedBroadcastProcessFunction):
    """Each record with each rule of its sort, at the later of the two: once only if the keyed and the broadcast state
    of a subtask agree on which of them have come, and the subtasks on which rules have."""

    def open(self, runtime_context: Any) -> None:
        self.waiting = runtime_context.get_list_state(WAITING)

    def process_element(self, value: int, ctx: Any) -> Iterable[Any]:
        self.waiting.add(value)
        return [(value, rule) for rule in ctx.get_broadcast_state(RULES).get(sort_of(value)) or ()]

    def process_broadcast_element(self, value: int, ctx: Any) -> Iterable[Any]:
        rules = ctx.get_broadcast_state(RULES)
        found: list[Any] = []

        def pair(key: int, waiting: Any) -> None:
            found.extend((record, value) for record in waiting.get() if key == sort_of(value))

        rules.put(sort_of(value), (*(rules.get(sort_of(value)) or ()), value))
        ctx.apply_to_key_state(WAITING, pair)
        return found


def build_pairs(env: StreamExecutionEnvironment) -> DataStream:
    """Records and rules come from all subtasks of tasks that fall behind, and so does what reads the pairs."""
    rules = env.from_collection(list(range(RULE_COUNT))).rebalance().map(same).name("rules")
    records = env.from_collection(list(range(RULED))).rebalance().map(same).name("records")
    pairs = records.key_by(sort_of).connect(rules.broadcast(RULES)).process(Pairs()).name("pairs").uid("pairs")
    return pairs.rebalance().map(same).name("behind")


def expected_pairs() -> list[Any]:
    return sorted((record, rule) for record in range(RULED) for rule in range(record % SORTS, RULE_COUNT, SORTS))


PAIRS = Job("pairs", build_pairs, expected_pairs)


@pytest.mark.parametrize("chain", CHAINS, ids=str)
def test_a_broadcast_under_back_pressure_is_rescaled(chain: tuple[int, ...], places: Places) -> None:
    """G5, D4: unaligned checkpoints hold records in flight, but none on its way to a task with a broadcast input. So
    all of its subtasks have seen the same rules, and others can take over."""
    *ended, last = shapes(chain, ("hashmap",))
    options = {**RETAINED, **SLOW_CONSUMERS, "execution.checkpointing.dir": places.store / "c"}
    path: str | None = None
    for shape in ended:
        path, kept = cancel(begin(PAIRS, shape, places, path, options), places)
        assert in_flight(kept, places) > 0
        assert "pairs" not in readers_of_what_is_in_flight(kept)
    assert len(LEDGER.get("out", ())) < len(PAIRS.expected())
    finish(begin(PAIRS, last, places, path, options), places)
    assert sorted(LEDGER["out"]) == PAIRS.expected()


# --- order ----------------------------------------------------------------------------------------------------------


KEYS, RECORDS = 7, 600
SENT = [(f"key-{n % KEYS}", n) for n in range(RECORDS)]


class InOrder(KeyedProcessFunction):
    """Passes records on with the number of the one before of the same key."""

    def open(self, runtime_context: Any) -> None:
        self.before = runtime_context.get_state(ValueStateDescriptor("before"))

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield (*value, self.before.value())
        self.before.update(value[1])


def build_in_order(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection(SENT).key_by(lambda record: record[0]).process(InOrder()).uid("in order")


def expected_in_order() -> list[Any]:
    return sorted((key, n, n - KEYS if n >= KEYS else None) for key, n in SENT)


IN_ORDER = Job("in order", build_in_order, expected_in_order)


@pytest.mark.parametrize("chain", CHAINS, ids=str)
def test_records_in_flight_keep_their_order(chain: tuple[int, ...], places: Places) -> None:
    """D4, G5, B3: those that were in flight come first, and those of one producer and key in the order in which they
    were sent."""
    *ended, last = shapes(chain, ("hashmap",))
    options = {**RETAINED, **SLOW_CONSUMERS, "execution.checkpointing.dir": places.store / "c"}
    path: str | None = None
    for shape in ended:
        path, kept = cancel(begin(IN_ORDER, shape, places, path, options), places)
        assert in_flight(kept, places) > 0
    finish(begin(IN_ORDER, last, places, path, options), places)
    assert sorted(LEDGER["out"], key=lambda r: r[:2]) == expected_in_order()


FILES, LINES = 24, 30


def build_tens(env: StreamExecutionEnvironment, path: Path) -> DataStream:
    """How many lines each ten seconds have, with a watermark that waits for none; a late line is one that is late."""
    lines: Source[str, Any] = FileSource.for_record_stream_format(TextLineFormat(), path).build()
    in_order = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(int)
    late = OutputTag("late")
    windows = env.from_source(lines, in_order, "lines").key_by(len).window(TumblingEventTimeWindows.of(10_000))
    counts = windows.side_output_late_data(late).aggregate(Count()).name("counts")
    return counts.map(str).union(counts.get_side_output(late).map(lambda line: f"{line} is late"))


@pytest.mark.parametrize("chain", [(4, 2, 3, 1), (4, 3, 2), (3, 1)], ids=str)
def test_readers_go_on_in_the_order_of_the_files(chain: tuple[int, ...], places: Places) -> None:
    """D4, C2: readers that take over files that others had begun read the earlier first, so that the watermark leaves
    none behind."""
    files = places.local / "files"
    files.mkdir()
    for number in range(FILES):
        seconds = range(10_000 + number * LINES, 10_000 + (number + 1) * LINES)
        (files / f"{number:02}").write_text("".join(f"{second}000\n" for second in seconds))
    job = Job("files", partial(build_tens, path=files), list)
    *ended, last = shapes(chain, ("hashmap",))
    path: str | None = None
    for shape in ended:
        path = stop(begin(job, shape, places, path, SMALL_STEPS), places)
    finish(begin(job, last, places, path, SMALL_STEPS), places)
    assert LEDGER["out"] == ["10"] * (FILES * LINES // 10)
