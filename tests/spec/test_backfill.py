"""One state for all execution modes: a batch fills it from the history, the others go on with it (I1, H4)."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.failing import Dies, FailsOnce
from tests.spec.backfill_program import (
    COUNTS,
    DISORDER_MS,
    TOTALS,
    WINDOW_MS,
    WINDOWS,
    answer,
    build,
    build_source,
    environment,
    events,
    file_sink,
    read_output_lines,
    write,
    written,
)

from penstock.base.errors import CheckpointError, ConfigurationError, JobExecutionError
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.hybrid import HybridSource
from penstock.connectors.split_reader import DataGeneratorSource, NumberSequenceSource, SplitQueue
from penstock.datastream.functions import MapFunction
from penstock.storage.file_store import FileCheckpointStore

pytestmark = pytest.mark.slow

KEYS = 7
#: Events of the history, of what comes while the job streams, and of each run of what is there by then.
HISTORY, LIVE, RUN = 1_200, 400, 200
FILE = 100


class Series:
    """Phases one behind the other, over one folder that grows, into the same files; what they store is elsewhere."""

    def __init__(self, folder: Path, store: Path, **settings: Any) -> None:
        self.folder = folder
        self.store = store
        self.out = folder / "out"
        self.input = folder / "in"
        self.input.mkdir()
        self.settings = settings
        self.count = 0

    def grow(self, count: int) -> None:
        for first in range(self.count, self.count + count, FILE):
            write(self.input, events(first, FILE, KEYS))
        self.count += count

    def start(self, mode: str, parallelism: int, begin_from: str | None = None, **settings: Any) -> Any:
        settings = {**self.settings, "execution__state_recovery__path": begin_from, **settings}
        env = environment(mode, parallelism, **settings)
        build(env, self.input, self.out)
        return env.execute_async()

    def back_fill(self, parallelism: int, name: str = "filled", begin_from: str | None = None, **settings: Any) -> str:
        path = str(self.store / name)
        self.start("BATCH", parallelism, begin_from, execution__batch__savepoint_path=path, **settings).wait()
        return path

    def stream(self, parallelism: int, begin_from: str, count: int, drain: bool = False, **settings: Any) -> str:
        job = self.start("STREAMING", parallelism, begin_from, **settings)
        self.grow(count)
        while len(written(self.out)[COUNTS]) < self.count:
            job.trigger_checkpoint().result(60)
        path: str = job.stop_with_savepoint(drain, str(self.store / "savepoints")).result(60)
        job.wait()
        return path

    def available_now(self, parallelism: int, begin_from: str, **settings: Any) -> str:
        checkpoints = self.store / "checkpoints"
        settings = {"execution__checkpointing__dir": str(checkpoints), **settings}
        job = self.start("MICRO_BATCH", parallelism, begin_from, **settings)
        job.wait()
        (path,) = checkpoints.glob(f"{job.get_job_id()}/chk-*/_metadata")
        return str(path)

    def drain(self, parallelism: int, begin_from: str, **settings: Any) -> None:
        job = self.start("MICRO_BATCH", parallelism, begin_from, execution__micro_batch__interval="10 ms", **settings)
        job.stop_with_savepoint(True, str(self.store / "savepoints")).result(60)
        job.wait()

    def in_one_run(self, parallelism: int) -> dict[str, list[str]]:
        """What one job in streaming, which nobody stops, writes for all files there are."""
        env = environment("STREAMING", parallelism, **self.settings)
        build(env, self.input, self.folder / "one run", build_source(self.input, grows=False))
        env.execute()
        return written(self.folder / "one run")


TARGETS = ["local", pytest.param("spark", marks=pytest.mark.spark)]


@pytest.mark.parametrize(
    ("target", "backends"),
    [
        ("local", ("hashmap", "hashmap")),
        ("local", ("rocksdb", "rocksdb")),
        ("local", ("rocksdb", "hashmap")),
        pytest.param("spark", ("hashmap", "hashmap"), marks=pytest.mark.spark),
        pytest.param("spark", ("hashmap", "rocksdb"), marks=pytest.mark.spark),
    ],
)
def test_batch_then_streaming_then_runs_of_what_is_there(
    target: str, backends: tuple[str, str], tmp_path: Path, store_directory: Path
) -> None:
    """I1, H4, G9: all execution modes together write what one streaming job writes, each line once, and plain Python
    says the same; the parallelism is another one in each phase."""
    series = Series(tmp_path, store_directory, execution__target=target)
    first: dict[str, Any] = {"state__backend__type": backends[0]}
    later: dict[str, Any] = {"state__backend__type": backends[1]}
    series.grow(HISTORY)
    path = series.back_fill(1, **first)
    so_far = written(series.out)
    assert len(so_far[COUNTS]) == HISTORY
    assert all(so_far.values())
    path = series.stream(4, path, LIVE, **later)
    for _ in range(2 if target == "local" else 1):
        series.grow(RUN)
        path = series.available_now(2, path, **later)
        assert len(written(series.out)[COUNTS]) == series.count
    series.drain(2, path, **later)
    assert written(series.out) == answer(events(0, series.count, KEYS))
    assert series.in_one_run(2) == written(series.out)


# --- what a back-fill leaves ------------------------------------------------------------------------------------------


def test_event_time_comes_to_the_sources_watermark_and_no_further(tmp_path: Path, store_directory: Path) -> None:
    """I1: what is due has fired, once; what is not waits in the savepoint for those who go on."""
    series = Series(tmp_path, store_directory, execution__target="local")
    series.grow(HISTORY)
    series.back_fill(1)
    seen = events(0, HISTORY, KEYS)
    watermark = max(event.time for event in seen) - DISORDER_MS - 1
    due = [line for line in answer(seen)[WINDOWS] if (int(line.split()[1]) + 1) * WINDOW_MS - 1 <= watermark]
    assert written(series.out)[WINDOWS] == due
    assert len(written(series.out)[TOTALS]) == sum(event.time <= watermark for event in seen)
    assert len(due) < len(answer(seen)[WINDOWS])


def test_one_back_fill_on_top_of_another(tmp_path: Path, store_directory: Path) -> None:
    """H4: the second begins from the state of the first, on another backend, at another parallelism; what is in it of
    sources that have been read is not read again."""
    series = Series(tmp_path, store_directory, execution__target="local")
    series.grow(HISTORY)
    path = series.back_fill(2, "first", state__backend__type="rocksdb")
    series.grow(LIVE)
    path = series.back_fill(3, "second", path)
    assert len(written(series.out)[COUNTS]) == HISTORY + LIVE
    series.grow(RUN)
    series.drain(1, path)
    assert written(series.out) == answer(events(0, series.count, KEYS))


def test_a_history_that_lies_elsewhere(tmp_path: Path, store_directory: Path) -> None:
    """H4: a bounded source of its own is read to its end, which is not the end of time; the live source, under another
    uid, goes on with the operators' state."""
    series = Series(tmp_path, store_directory, execution__target="local")
    history = tmp_path / "history"
    history.mkdir()
    for first in range(0, HISTORY, FILE):
        write(history, events(first, FILE, KEYS))
    path = str(store_directory / "filled")
    env = environment("AUTOMATIC", 2, execution__target="local", execution__batch__savepoint_path=path)
    build(env, history, series.out, build_source(history, grows=False), uid="history")
    env.execute()
    assert len(written(series.out)[WINDOWS]) < len(answer(events(0, HISTORY, KEYS))[WINDOWS])
    series.count = HISTORY
    with pytest.raises(JobExecutionError, match="ignore-unclaimed-state"):
        series.start("STREAMING", 1, path).wait()
    path = series.stream(1, path, LIVE, drain=True, execution__state_recovery__ignore_unclaimed_state=True)
    assert written(series.out) == answer(events(0, HISTORY + LIVE, KEYS))


def test_a_bounded_source_that_pauses_is_read_to_its_end(tmp_path: Path, store_directory: Path) -> None:
    """I1: one that keeps to a rate; and a second pass finds it at its end."""
    for number, begin_from in [(1, None), (2, str(store_directory / "1"))]:
        path = str(store_directory / str(number))
        settings = {"execution__batch__savepoint_path": path, "execution__state_recovery__path": begin_from}
        env = environment("BATCH", 2, execution__target="local", **settings)
        slow: Any = DataGeneratorSource(lambda n: n, 60, rate_per_second=2_000)
        numbers = env.from_source(slow, WatermarkStrategy.no_watermarks(), "slow").uid("slow")
        numbers.sink_to(file_sink(tmp_path / "out")).uid("out")
        env.execute()
        assert read_output_lines(tmp_path / "out") == sorted(map(str, range(60)))


def test_a_history_and_what_is_live_as_one_source(tmp_path: Path, store_directory: Path) -> None:
    """A2, H4: of a HybridSource both the history and what is there of the live files are read in the one pass, and
    streaming goes on in the live ones, at another parallelism."""
    series = Series(tmp_path, store_directory, execution__target="local")
    series.grow(HISTORY)
    history = tmp_path / "history"
    series.input.rename(history)
    series.input.mkdir()
    series.grow(RUN)

    def start(mode: str, parallelism: int, **settings: Any) -> Any:
        env = environment(mode, parallelism, execution__target="local", **settings)
        both = HybridSource.builder(build_source(history, grows=False)).add_source(build_source(series.input)).build()
        build(env, series.input, series.out, both)
        return env.execute_async()

    path = str(store_directory / "filled")
    start("BATCH", 3, execution__batch__savepoint_path=path).wait()
    assert len(written(series.out)[COUNTS]) == series.count
    series.grow(LIVE)
    job = start("STREAMING", 2, execution__state_recovery__path=path)
    while len(written(series.out)[COUNTS]) < series.count:
        job.trigger_checkpoint().result(60)
    job.stop_with_savepoint(True, str(store_directory / "savepoints")).result(60)
    job.wait()
    assert written(series.out) == answer(events(0, series.count, KEYS))


# --- what is refused --------------------------------------------------------------------------------------------------


def test_a_path_that_is_taken_is_refused(tmp_path: Path, store_directory: Path) -> None:
    """H1: nothing is overwritten, and nothing runs."""
    series = Series(tmp_path, store_directory, execution__target="local")
    series.grow(FILE)
    (store_directory / "filled").mkdir()
    (store_directory / "filled" / "of another").touch()
    with pytest.raises(JobExecutionError, match=r"execution\.batch\.savepoint-path: .*/filled already exists"):
        series.back_fill(1)
    assert not series.out.exists()


@pytest.mark.parametrize("mode", ["STREAMING", "MICRO_BATCH", "AUTOMATIC"])
def test_another_mode_does_not_take_the_path(mode: str, tmp_path: Path, store_directory: Path) -> None:
    """I1: AUTOMATIC with an unbounded source streams."""
    series = Series(tmp_path, store_directory, execution__target="local")
    with pytest.raises(ConfigurationError, match=f"savepoint-path is set, but execution.runtime-mode is {mode}"):
        series.start(mode, 1, execution__batch__savepoint_path=str(store_directory / "filled"))


def test_batch_without_a_path_refuses_unbounded_sources_and_says_what_would_do(
    tmp_path: Path, store_directory: Path
) -> None:
    """I1."""
    series = Series(tmp_path, store_directory, execution__target="local")
    with pytest.raises(ConfigurationError, match=r"'files' is unbounded.*execution\.batch\.savepoint-path"):
        series.start("BATCH", 1)


class KeepsBack(SplitQueue[Any]):
    """Hands out nothing, and does not say that this is all."""

    def handle_split_request(self, subtask_index: int) -> None: ...


class Sparing(NumberSequenceSource):
    def create_enumerator(self, context: Any, restored: Any) -> Any:
        return KeepsBack(context, [], None)


def test_a_bounded_source_that_keeps_splits_back_cannot_be_read_in_one_pass(store_directory: Path) -> None:
    """A2: it would be read in part, so it is refused, and no savepoint is left."""
    path = store_directory / "filled"
    env = environment("BATCH", 1, execution__target="local", execution__batch__savepoint_path=str(path))
    env.from_source(Sparing(1, 5), WatermarkStrategy.no_watermarks(), "sparing").print()
    with pytest.raises(JobExecutionError, match="Sparing assigns some splits only after others have been read"):
        env.execute()
    assert not path.exists()


def test_it_leaves_one_savepoint_only(tmp_path: Path, store_directory: Path) -> None:
    """H1: asked for another it says so."""
    series = Series(tmp_path, store_directory, execution__target="local")
    series.grow(FILE)
    job = series.start("BATCH", 1, execution__batch__savepoint_path=str(store_directory / "filled"))
    with pytest.raises(CheckpointError, match="writes one savepoint, at its end"):
        job.stop_with_savepoint(False, str(store_directory)).result(60)
    job.wait()


# --- failures ---------------------------------------------------------------------------------------------------------


def keyed_sums(env: Any, folder: Path, in_between: MapFunction) -> None:
    """Running counts of numbers by their last digit, behind a function that may fail."""
    numbers = env.from_source(NumberSequenceSource(0, 4_999), WatermarkStrategy.no_watermarks(), "numbers")
    counts = numbers.uid("numbers").map(lambda n: (n % 10, 1)).key_by(lambda pair: pair[0])
    summed = counts.reduce(lambda a, b: (a[0], a[1] + b[1])).uid("counts")
    summed.map(lambda pair: pair[0] * 1_000 + pair[1]).map(in_between).sink_to(file_sink(folder / "out")).uid("out")


def expected_sums() -> list[str]:
    return sorted(str(digit * 1_000 + count) for digit in range(10) for count in range(1, 501))


@pytest.mark.parametrize("target", TARGETS)
def test_a_pass_that_fails_begins_anew(target: str, tmp_path: Path, store_directory: Path) -> None:
    """G8, G9: nothing of the first attempt is in the savepoint or in the output. On Spark a worker's process is killed
    in the middle."""
    restart = {"restart_strategy__type": "fixed-delay", "restart_strategy__fixed_delay__attempts": 1}
    path, marker = store_directory / "filled", tmp_path / "marker"
    settings = {"execution__target": target, "execution__batch__savepoint_path": str(path), **restart}
    fails = FailsOnce(marker, 2_000) if target == "local" else Dies(marker, 7_250)
    env = environment("BATCH", 2, **settings)
    keyed_sums(env, tmp_path, fails)
    env.execute()
    assert marker.exists()
    assert read_output_lines(tmp_path / "out") == expected_sums()
    store = FileCheckpointStore(None, "", 0)
    named = {Path(file.path or "").name for file in store.load(str(path)).state_files() if file.path is not None}
    assert {file.name for file in path.iterdir()} == {"_metadata", *named}


PROGRAM = """
import sys
from pathlib import Path
from tests.spec.backfill_program import environment
from tests.failing import Dies
from tests.spec.test_backfill import keyed_sums
folder = Path(sys.argv[1])
env = environment("BATCH", 2, execution__target="local", execution__batch__savepoint_path=sys.argv[2])
keyed_sums(env, folder, Dies(folder / "marker", 9_499))
env.execute()
"""


def test_a_program_that_is_killed_leaves_no_savepoint_and_no_output(tmp_path: Path, store_directory: Path) -> None:
    """G8, G9: SIGKILL in the last keyed task; another run, to another path, writes everything once."""

    def run(path: Path) -> int:
        command = [sys.executable, "-c", PROGRAM, str(tmp_path), str(path)]
        return subprocess.run(command, timeout=100, check=False, cwd=Path(__file__).parents[2]).returncode

    assert run(store_directory / "first") == -signal.SIGKILL
    assert not (store_directory / "first" / "_metadata").exists()
    assert read_output_lines(tmp_path / "out") == []
    assert run(store_directory / "second") == 0
    assert read_output_lines(tmp_path / "out") == expected_sums()
    assert (store_directory / "second" / "_metadata").exists()
