"""What was acknowledged survives a power cut, in the order of its promises: state files, metadata, commits."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import fsspec
import pytest
from tests.datastream.test_micro_batch import MICRO, STREAMING, environment, lines_below
from tests.storage.power_cut import PowerCut, recording
from tests.storage.test_file_store import build_metadata

from penstock.base.durable_files import publish
from penstock.base.errors import CheckpointError
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.common import Encoder
from penstock.connectors.file.committer import FileCommittable, FileCommitter
from penstock.connectors.file.filesystem import write_whole
from penstock.connectors.file.sink import FileCommitLog
from penstock.connectors.split_reader import NumberSequenceSource
from penstock.datastream.connectors.file_system import FileSink
from penstock.storage.file_store import FileCheckpointStore
from penstock.storage.files import ObjectFiles
from penstock.storage.leadership import DeposedError, JobMark, KeyedLeaders
from penstock.storage.metadata import METADATA_NAME
from penstock.storage.savepoints import (
    claim_savepoint,
    delete_directory,
    delete_snapshot,
    empty_savepoint,
    open_snapshot,
)


@pytest.fixture
def live(tmp_path: Path) -> Path:
    directory = tmp_path / "live"
    directory.mkdir()
    return directory


@pytest.fixture
def cut(live: Path) -> Iterator[PowerCut]:
    with recording(live) as recorder:
        yield recorder


def images(cut: PowerCut, to: Path) -> list[Path]:
    """What may be there after a cut at this moment: nothing that was not synced, and four cases by chance."""
    found = [to / str(number) for number in range(5)]
    to.mkdir(parents=True)
    for number, image in enumerate(found):
        cut.image(image, random.Random(number) if number else None)
    return found


def test_a_checkpoint_that_is_complete_survives(live: Path, cut: PowerCut, tmp_path: Path) -> None:
    """G8, G11: at every moment before, it is whole or not to be seen; from then on it is whole."""
    store = FileCheckpointStore(str(live / "checkpoints"), "job", 0)
    seen: list[Path] = []
    cut.on_sync = lambda: seen.extend(images(cut, tmp_path / str(len(seen))))
    metadata = build_metadata(*(store.write(1, f"op-0-{i}-count", b"data" * (i + 1)) for i in range(3)))
    store.complete(metadata)
    cut.on_sync = lambda: None
    complete = images(cut, tmp_path / "complete")
    visible = 0
    for image in seen + complete:
        at = image / "checkpoints" / "job" / "chk-1"
        if (at / METADATA_NAME).exists():
            visible += 1
            there = FileCheckpointStore(str(image / "checkpoints"), "job", 0)
            for number, file in enumerate(there.load(str(at)).state_files()):
                name = Path(file.path or "").name
                assert (at / name).read_bytes() == b"data" * (number + 1)
        else:
            assert image not in complete
    assert len(seen) > 10
    assert visible > len(complete)


@pytest.mark.parametrize("is_claimed", [False, True])
def test_a_savepoint_survives(live: Path, cut: PowerCut, tmp_path: Path, is_claimed: bool) -> None:
    """H1: with what it shares with a checkpoint, in directories that were made for it."""
    store = FileCheckpointStore(str(live / "checkpoints"), "job", 0)
    place = Path("savepoints") / "very" / "deep" / "down" / "mine"
    path = str(live / place)
    if is_claimed:
        claim_savepoint(path, "job")
    shared = store.write(1, "op-0-0-count", b"shared")
    own = store.write(2, "op-0-1-count", b"own", path)
    store.complete(build_metadata(shared, own, checkpoint_id=2), path)
    for image in images(cut, tmp_path / "images"):
        saved = FileCheckpointStore(None, "other", 0).load(str(image / place))
        assert [Path((file.path or "").removeprefix("file://")).read_bytes() for file in saved.state_files()] == [
            b"shared",
            b"own",
        ]


def dispose(path: str) -> None:
    delete_snapshot(open_snapshot(path))


@pytest.mark.parametrize("delete", [delete_directory, dispose, partial(empty_savepoint, owner="job")])
def test_a_savepoint_that_is_deleted_does_not_come_back_in_part(
    delete: Callable[[str], None], live: Path, cut: PowerCut, tmp_path: Path
) -> None:
    """G11, H1: where its metadata is, its files are."""
    store = FileCheckpointStore(None, "job", 0)
    path = live / "mine"
    file = store.write(1, "op-0-0-count", b"state", str(path))
    store.complete(build_metadata(file), str(path))
    seen = images(cut, tmp_path / "before")
    cut.on_sync = lambda: seen.extend(images(cut, tmp_path / str(len(seen))))
    delete(str(path))
    cut.on_sync = lambda: None
    after = images(cut, tmp_path / "after")
    assert not any((image / "mine" / METADATA_NAME).exists() for image in after)
    visible = [image for image in seen if (image / "mine" / METADATA_NAME).exists()]
    assert visible
    assert all((image / "mine" / Path(file.path or "").name).read_bytes() == b"state" for image in visible)


def test_what_has_become_of_a_job_survives(live: Path, cut: PowerCut, tmp_path: Path) -> None:
    """G8: a job that deletes its checkpoints has said first that it ended."""
    FileCheckpointStore(str(live), "job", 0).mark_job(JobMark("job", "words", "FINISHED", 1))
    for image in images(cut, tmp_path / "images"):
        (mark,) = FileCheckpointStore(str(image), "job", 0).take_over("words").marks
        assert mark.status == "FINISHED"


class Died(BaseException):
    """A process ends here."""


def dying_before_names_are_synced(act: Callable[[], Any]) -> None:
    """Act as a process that dies as soon as it has given a file its name."""

    def and_die(step: Callable[[str, str], None]) -> Callable[[str, str], None]:
        def call(partial: str, path: str) -> None:
            step(partial, path)
            raise Died

        return call

    replacing = mock.patch("os.replace", and_die(os.replace))
    publishing = mock.patch("penstock.storage.files.publish", and_die(publish))
    with replacing, publishing, suppress(Died):
        act()


def test_what_a_job_goes_on_from_survives(live: Path, cut: PowerCut, tmp_path: Path) -> None:
    """G8: the master that made it visible may have died before it was synced; the next lets sinks commit what it holds.

    Else a second power cut could take the checkpoint whose output was committed.
    """
    former = FileCheckpointStore(str(live), "job", 0)
    former.take_over("name")
    dying_before_names_are_synced(lambda: former.complete(build_metadata()))
    dying_before_names_are_synced(lambda: former.mark_job(JobMark("other", "name", "BEGUN", 1)))
    left = FileCheckpointStore(str(live), "job", 0).take_over("name")
    assert [one.checkpoint_id for one in left.checkpoints] == [1]
    assert [mark.job_id for mark in left.marks] == ["other"]
    for image in images(cut, tmp_path / "images"):
        there = FileCheckpointStore(str(image), "job", 0).take_over("name")
        assert [one.checkpoint_id for one in there.checkpoints] == [1]
        assert [mark.job_id for mark in there.marks] == ["other"]


def test_a_savepoint_that_a_job_begins_from_survives(live: Path, cut: PowerCut, tmp_path: Path) -> None:
    """H2: the same when the path is given."""
    former = FileCheckpointStore(str(live / "checkpoints"), "job", 0)
    dying_before_names_are_synced(lambda: former.complete(build_metadata(), str(live / "mine")))
    FileCheckpointStore(None, "other", 0).load(str(live / "mine"), "name")
    for image in images(cut, tmp_path / "images"):
        assert FileCheckpointStore(None, "other", 0).load(str(image / "mine")).checkpoint_id == 1


def claim_number(store: FileCheckpointStore) -> int | None:
    try:
        return store.take_over("words").number
    except DeposedError:
        return None  # another one has taken a higher one at the same moment


def test_the_number_of_a_job_master_is_given_once(live: Path, cut: PowerCut, tmp_path: Path) -> None:
    """G8: to one of several that ask at the same moment, and not again after a power cut."""
    stores = [FileCheckpointStore(str(live), "job", 0) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        numbers = [number for number in pool.map(claim_number, stores * 5) if number is not None]
    assert len(set(numbers)) == len(numbers) > 0
    for image in images(cut, tmp_path / "images"):
        assert FileCheckpointStore(str(image), "job", 0).take_over("words").number > max(numbers)


def test_numbers_are_given_once_in_other_file_systems() -> None:
    """G8, G11."""
    with mock.patch.object(ObjectFiles, "names", return_value=[]):  # by listings that were made before all of them
        leaders = KeyedLeaders(ObjectFiles(fsspec.filesystem("memory")), "/numbers-of-masters", "words")
        assert [leaders.take("a") for _ in range(3)] == [1, 2, 3]


def test_a_file_that_is_written_whole_survives(live: Path, cut: PowerCut, tmp_path: Path) -> None:
    """G9: such as the list of what a batch is about to commit."""
    write_whole(str(live / "a" / "b" / "list"), b"one")
    write_whole(str(live / "a" / "b" / "list"), b"two")
    assert {(image / "a" / "b" / "list").read_bytes() for image in images(cut, tmp_path / "images")} == {b"two"}


def test_what_a_file_sink_has_committed_survives(live: Path, cut: PowerCut, tmp_path: Path) -> None:
    """G9: before, it is in one place or in the other, and never in none."""
    hidden, final = live / "out" / ".penstock" / ".part", live / "out" / "bucket" / "part"
    write_whole(str(hidden), b"rows")
    seen: list[Path] = []
    cut.on_sync = lambda: seen.extend(images(cut, tmp_path / str(len(seen))))
    FileCommitter().commit([FileCommittable(str(hidden), str(final), 4)])
    cut.on_sync = lambda: None
    for image in seen:
        places = [image / file.relative_to(live) for file in (hidden, final)]
        assert [place.read_bytes() for place in places if place.exists()] in ([b"rows"], [b"rows"] * 2)
    for image in images(cut, tmp_path / "images"):
        assert (image / final.relative_to(live)).read_bytes() == b"rows"


def test_what_a_dead_run_of_a_batch_had_shown_stays_taken_back(live: Path, cut: PowerCut, tmp_path: Path) -> None:
    """G9: as long as its rows may be back, so is the list by which the next run removes them."""
    out = live / "out"
    first, second = (FileCommitLog(str(out), str(out / ".penstock" / name), "words") for name in ("first", "second"))
    hidden, final = out / ".penstock" / "first" / ".part-0-0-a.closed.0-0-0", out / "bucket" / "part-0-0-a"
    write_whole(str(hidden), b"rows")
    first.begin()
    first.write([FileCommittable(str(hidden), str(final), 4)])
    (listed,) = (out / ".penstock").glob("*.commit")
    FileCommitter().commit([FileCommittable(str(hidden), str(final), 4)])
    assert first._held is not None
    first._held.close()  # it is dead
    assert "rolled back" in second.begin()[0]
    second.write([])
    for image in images(cut, tmp_path / "images"):
        rows, tells_of_them = (image / path.relative_to(live) for path in (final, listed))
        assert tells_of_them.exists() or not rows.exists()


# --- planted bugs ----------------------------------------------------------------------------------------------------


def written(path: str, data: bytes) -> None:
    Path(path).write_bytes(data)


def nothing(paths: Iterable[str], *files: Any) -> None:
    """Sync no names."""


PLANTED: dict[str, tuple[str, Any, Callable[..., None]]] = {
    "bytes of state files": (
        "penstock.storage.files.write_bytes",
        written,
        test_a_checkpoint_that_is_complete_survives,
    ),
    "names of checkpoints": (
        "penstock.storage.files.sync_directories",
        nothing,
        test_a_checkpoint_that_is_complete_survives,
    ),
    "directories of checkpoints": (
        "penstock.base.durable_files.sync_directories",
        nothing,
        partial(test_a_savepoint_survives, is_claimed=True),
    ),
    "number of a job master": (
        "penstock.base.durable_files.sync_directories",
        nothing,
        test_the_number_of_a_job_master_is_given_once,
    ),
    "what another job master has left": (
        "penstock.storage.file_store.sync_found",
        lambda fs, directory: None,
        test_what_a_job_goes_on_from_survives,
    ),
    "marks of another job master": (
        "penstock.storage.leadership.sync_found",
        lambda fs, directory: None,
        test_what_a_job_goes_on_from_survives,
    ),
    "savepoints of another job": (
        "penstock.storage.file_store.sync_found",
        lambda fs, directory: None,
        test_a_savepoint_that_a_job_begins_from_survives,
    ),
    "names of lists": (
        "penstock.connectors.file.filesystem.sync_directory_entries",
        nothing,
        test_a_file_that_is_written_whole_survives,
    ),
    "what was taken back": (
        "penstock.connectors.file.sink.sync_names",
        nothing,
        test_what_a_dead_run_of_a_batch_had_shown_stays_taken_back,
    ),
    "commits": (
        "penstock.connectors.file.committer.sync_names",
        nothing,
        test_what_a_file_sink_has_committed_survives,
    ),
}


@pytest.mark.parametrize("what", PLANTED)
def test_what_is_not_synced_is_found_missing(what: str, live: Path, cut: PowerCut, tmp_path: Path) -> None:
    target, wrong, proof = PLANTED[what]
    with mock.patch(target, wrong), pytest.raises((AssertionError, OSError, CheckpointError)):
        proof(live, cut, tmp_path)


# --- whole jobs ------------------------------------------------------------------------------------------------------

COUNT = 240


def slow(number: int) -> str:
    time.sleep(0.001)
    return str(number)


def job(directory: Path, mode: Any) -> Any:
    """Writes each number once."""
    conf = {
        "execution.checkpointing.dir": directory / "checkpoints",
        "execution.checkpointing.interval": "10 ms",
        "execution.checkpointing.data-inline-threshold": "0 bytes",
        "execution.micro-batch.max-records": "40",
        "penstock.source.batch-records": "5",
        "penstock.recovery.from-latest": "true",
    }
    env = environment(2, mode, **conf)
    numbers = env.from_source(NumberSequenceSource(1, COUNT), WatermarkStrategy.no_watermarks(), "numbers")
    passed = numbers.key_by(lambda number: number % 7).reduce(lambda before, number: number).map(slow)
    sink = FileSink.for_row_format(str(directory / "out"), Encoder.simple_string_encoder()).build()
    passed.sink_to(sink)
    return env


@pytest.mark.parametrize("mode", [STREAMING, MICRO], ids=["streaming", "epochs"])
def test_a_job_goes_on_after_a_power_cut(live: Path, tmp_path: Path, mode: Any) -> None:
    """G8, G9, G11: from any moment, started again as after any end of its driver; each row is there once."""
    chance = random.Random(1)
    cuts: list[Path] = []
    with recording(live) as cut:

        def on_sync() -> None:
            if chance.random() < 0.05 and len(cuts) < 24:
                image = tmp_path / f"image-{len(cuts)}"
                cut.image(image, random.Random(len(cuts)) if len(cuts) % 2 else None)
                cuts.append(image)

        cut.on_sync = on_sync
        job(live, mode).execute("numbers")
    expected = sorted(map(str, range(1, COUNT + 1)))
    assert sorted(lines_below(live / "out")) == expected
    assert len(cuts) > 3
    for number, image in enumerate(cuts):
        live.rename(tmp_path / f"before-{number}")
        image.rename(live)
        job(live, mode).execute("numbers")
        assert sorted(lines_below(live / "out")) == expected, number
