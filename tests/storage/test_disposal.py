"""What is deleted of savepoints and checkpoints, and what is refused, beside what other programs and jobs have left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import fsspec
import pyarrow as pa
import pytest
from msgspec.structs import replace
from pyarrow import parquet

from penstock.base.configuration import Configuration
from penstock.base.errors import CheckpointError
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.storage.file_store import FileCheckpointStore
from penstock.storage.files import write_metadata
from penstock.storage.leadership import BEGUN, JobMark
from penstock.storage.metadata import (
    METADATA_NAME,
    CheckpointMetadata,
    NativeStateHandle,
    OperatorState,
    OperatorSubtaskState,
    StateFile,
    checksum,
)
from penstock.storage.savepoints import (
    ENDED_NAME,
    check_disposable,
    delete_snapshot,
    note_end,
    open_snapshot,
)

JOB, OTHER = "a" * 32, "b" * 32
Ended = Callable[[str], bool]


def build_metadata(
    *files: StateFile, checkpoint_id: int, job_id: str = JOB, is_savepoint: bool = False
) -> CheckpointMetadata:
    """One operator whose state is in the backend's own files, as RocksDB writes them."""
    named = {f"{number}.sst": file for number, file in enumerate(files)}
    state = OperatorSubtaskState(native=(NativeStateHandle("rocksdb", 0, 127, named),))
    operator = OperatorState("op", None, "op", 1, 128, {0: state})
    return CheckpointMetadata(checkpoint_id, job_id, "words", 1, is_savepoint, (operator,))


def store_of(root: Path, job_id: str = JOB) -> FileCheckpointStore:
    store = FileCheckpointStore(str(root), job_id, 0)
    store.join("words")
    return store


def two_checkpoints(root: Path) -> tuple[Path, Path]:
    """Checkpoint 1, and checkpoint 2, which refers to a file of 1."""
    store = store_of(root)
    shared, dropped = store.write(1, "shared", b"shared"), store.write(1, "dropped", b"dropped")
    store.complete(build_metadata(shared, dropped, checkpoint_id=1))
    store.complete(build_metadata(shared, store.write(2, "new", b"new"), checkpoint_id=2))
    return root / JOB / "chk-1", root / JOB / "chk-2"


def savepoint(folder: Path, job_id: str = JOB) -> Path:
    store = FileCheckpointStore(None, job_id, 0)
    file = store.write(1, "state", b"state", str(folder))
    store.complete(build_metadata(file, checkpoint_id=1, job_id=job_id, is_savepoint=True), str(folder))
    return folder


def dispose(path: Path, *ended: str, roots: tuple[str, ...] = ()) -> list[str]:
    snapshot = open_snapshot(str(path))
    check_disposable(snapshot, ended.__contains__, roots)
    return delete_snapshot(snapshot, roots)


def names(folder: Path) -> list[str]:
    return sorted(path.name.rpartition("-")[0] or path.name for path in folder.iterdir())


def test_what_is_no_snapshot_is_left_as_it_is(tmp_path: Path) -> None:
    """G11: the summary file of a Parquet data set has the name of a checkpoint's metadata."""
    parquet.write_table(pa.table({"a": [1]}), tmp_path / METADATA_NAME)
    with pytest.raises(CheckpointError, match="is not a checkpoint's metadata"):
        open_snapshot(str(tmp_path))
    with pytest.raises(CheckpointError):
        open_snapshot(str(tmp_path / "nothing"))
    assert (tmp_path / METADATA_NAME).exists()


def test_foreign_files_beside_a_savepoint_stay(tmp_path: Path) -> None:
    """H1: only what its metadata names goes; folders and links beside it stay, too."""
    folder = savepoint(tmp_path / "savepoint")
    (folder / "notes.txt").write_text("mine")
    (folder / "data").mkdir()
    (folder / "data" / "rows.csv").write_text("1")
    assert dispose(folder) == ["data", "notes.txt"]
    assert names(folder) == ["data", "notes.txt"]
    assert (folder / "data" / "rows.csv").exists()
    alone = savepoint(tmp_path / "alone")
    assert dispose(alone / METADATA_NAME) == []
    assert not alone.exists()


def test_files_that_newer_checkpoints_refer_to_stay(tmp_path: Path) -> None:
    """G6: what is left of checkpoint 1 goes with checkpoint 2."""
    one, two = two_checkpoints(tmp_path)
    note_end(str(tmp_path), JOB)
    assert len(dispose(one)) == 1
    assert names(one) == ["shared"]
    store_of(tmp_path, OTHER).verify(store_of(tmp_path, OTHER).load(str(two)))
    assert dispose(two) == []
    assert not one.exists()
    assert not (tmp_path / JOB).exists()


def test_the_newer_one_may_go_first(tmp_path: Path) -> None:
    """G6."""
    one, two = two_checkpoints(tmp_path)
    dispose(two, JOB)
    assert not two.exists()
    store = store_of(tmp_path, OTHER)
    store.verify(store.load(str(one)))


def test_a_checkpoint_of_a_job_that_may_run_is_refused(tmp_path: Path) -> None:
    """G6: the job may run in another driver, of which nothing tells but the directory."""
    one, two = two_checkpoints(tmp_path)
    for folder in (one, two):
        with pytest.raises(CheckpointError, match="no end of the job is recorded"):
            dispose(folder)
    note_end(str(tmp_path), JOB)
    store_of(tmp_path)  # it begins again, under the same id
    with pytest.raises(CheckpointError, match="in use"):
        dispose(two)
    assert (two / METADATA_NAME).exists()


def test_a_link_does_not_lead_around_the_refusal(tmp_path: Path) -> None:
    """G6."""
    _, two = two_checkpoints(tmp_path / "root")
    link = tmp_path / "link"
    link.symlink_to(two, target_is_directory=True)
    with pytest.raises(CheckpointError, match="in use"):
        dispose(link)
    jobs = tmp_path / "jobs"
    jobs.symlink_to(tmp_path / "root", target_is_directory=True)
    with pytest.raises(CheckpointError, match="in use"):
        dispose(jobs / JOB / "chk-2")
    dispose(link, JOB)
    assert not (two / METADATA_NAME).exists()


@pytest.mark.parametrize("where", ["outside", "../outside", "absolute", "url", "link"])
def test_files_elsewhere_stay_whatever_metadata_names(where: str, tmp_path: Path) -> None:
    """H1: metadata may come from anybody."""
    outside = tmp_path / "outside"
    outside.mkdir()
    precious = outside / "precious"
    precious.write_bytes(b"precious")
    folder = tmp_path / "savepoint"
    folder.mkdir()
    if where == "link":
        (folder / "state").symlink_to(precious)
    path = {
        "outside": "savepoint/../outside/precious",
        "../outside": f"{folder}/../outside/precious",
        "absolute": str(precious),
        "url": precious.as_uri(),
        "link": "state",
    }[where]
    file = StateFile(8, checksum(b"precious"), path=path)
    write_metadata(fsspec.filesystem("file"), str(folder), build_metadata(file, checkpoint_id=1, is_savepoint=True))
    dispose(folder)
    assert precious.read_bytes() == b"precious"
    assert not folder.exists()


def test_a_link_to_a_directory_beside_a_checkpoint_is_not_followed(tmp_path: Path) -> None:
    """H1: `chk-9` leads out of the job's directory."""
    store = store_of(tmp_path / "root")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_bytes(b"precious")
    store.write(1, "own", b"own")
    (tmp_path / "root" / JOB / "chk-9").symlink_to(outside, target_is_directory=True)
    named = StateFile(8, checksum(b"precious"), path=str(tmp_path / "root" / JOB / "chk-9" / "precious"))
    store.complete(build_metadata(named, checkpoint_id=1))
    dispose(tmp_path / "root" / JOB / "chk-1", JOB)
    assert (outside / "precious").exists()


def test_a_damaged_neighbour_may_need_the_files(tmp_path: Path) -> None:
    """G11: nothing is deleted then."""
    one, two = two_checkpoints(tmp_path)
    (two / METADATA_NAME).write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match="another checkpoint of its job may need its files"):
        dispose(one, JOB)
    assert names(one) == [METADATA_NAME, "dropped", "shared"]


def test_a_savepoint_from_which_a_job_of_another_driver_began_is_refused(tmp_path: Path) -> None:
    """H4: until the job has a checkpoint of its own."""
    folder, root = savepoint(tmp_path / "savepoint"), tmp_path / "root"
    store = store_of(root, OTHER)
    store.mark_job(JobMark(OTHER, "words", BEGUN, 5, folder.as_uri()))
    with pytest.raises(CheckpointError, match="began from it"):
        dispose(folder, roots=(str(root),))
    store.complete(build_metadata(store.write(1, "new", b"new"), checkpoint_id=1, job_id=OTHER))
    dispose(folder, roots=(str(root),))
    assert not folder.exists()


def test_a_checkpoint_of_an_ended_job_from_which_another_one_began_is_refused(tmp_path: Path) -> None:
    """H4."""
    _, two = two_checkpoints(tmp_path)
    store_of(tmp_path, OTHER).mark_job(JobMark(OTHER, "more words", BEGUN, 5, str(two)))
    with pytest.raises(CheckpointError, match="'more words'"):
        dispose(two, JOB)
    dispose(two, JOB, OTHER)


def test_a_claimed_savepoint_is_its_claimers_to_delete(tmp_path: Path) -> None:
    """H4: CLAIM mode, in any driver."""
    folder = savepoint(tmp_path / "savepoint")
    store_of(tmp_path / "root", OTHER).load(str(folder), "words", claims=True)
    with pytest.raises(CheckpointError, match="claimed by job 'words'"):
        dispose(folder)
    dispose(folder, OTHER)
    assert not folder.exists()


def test_a_job_that_took_over_frees_what_the_one_before_left(tmp_path: Path) -> None:
    """G8: the driver before was killed, and said nothing of its end."""
    _, two = two_checkpoints(tmp_path)
    successor = FileCheckpointStore(str(tmp_path), OTHER, 0)
    successor.take_over("words")
    with pytest.raises(CheckpointError, match="has no checkpoint of its own yet"):
        dispose(two)
    successor.complete(build_metadata(successor.write(3, "new", b"new"), checkpoint_id=3, job_id=OTHER))
    dispose(two)
    assert not two.exists()


def test_a_claimed_checkpoint_leaves_what_others_refer_to(tmp_path: Path) -> None:
    """H4: the job that claimed a checkpoint of another one deletes no file of that job's other checkpoints."""
    one, two = two_checkpoints(tmp_path)
    (one / "notes.txt").write_text("mine")
    claimer = store_of(tmp_path, OTHER)
    claimer.load(str(one), "words", claims=True)
    claimer.delete_savepoint(str(one))
    assert names(one) == ["notes.txt", "shared"]
    claimer.verify(claimer.load(str(two)))


def test_the_end_is_recorded_only_where_something_is_left(tmp_path: Path) -> None:
    """G6."""
    note_end(str(tmp_path), JOB)
    assert not (tmp_path / JOB).exists()
    two_checkpoints(tmp_path)
    note_end(str(tmp_path), JOB)
    note_end(str(tmp_path), JOB)
    assert (tmp_path / JOB / ENDED_NAME).exists()


def test_copied_metadata_does_not_reach_the_files_of_its_origin(tmp_path: Path) -> None:
    """H1: a copy of a checkpoint's directory names the files of the checkpoint that it was made of."""
    one, _ = two_checkpoints(tmp_path / "root")
    copied = tmp_path / "copy"
    copied.mkdir()
    (copied / METADATA_NAME).write_bytes((one / METADATA_NAME).read_bytes())
    dispose(copied)
    assert not copied.exists()
    assert names(one) == [METADATA_NAME, "dropped", "shared"]
    again = tmp_path / "again" / JOB / "chk-1"
    again.mkdir(parents=True)
    found = open_snapshot(str(one)).metadata
    write_metadata(fsspec.filesystem("file"), str(again), replace(found, job_name="again"))
    dispose(again, JOB)
    assert names(one) == [METADATA_NAME, "dropped", "shared"]


@pytest.mark.parametrize("mode", ["STREAMING", "MICRO_BATCH"])
def test_a_job_that_leaves_checkpoints_records_its_end(mode: str, tmp_path: Path) -> None:
    """G6: so any driver may delete them."""
    options = {
        "execution.target": "local",
        "execution.runtime-mode": mode,
        "execution.checkpointing.interval": "20 ms",
        "execution.checkpointing.dir": str(tmp_path),
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(options))
    source = DataGeneratorSource(lambda i: i, None, rate_per_second=1_000)
    env.from_source(source, WatermarkStrategy.no_watermarks(), "n").filter(lambda n: False).print()
    job = env.execute_async("retains")
    while not list(tmp_path.glob("*/chk-*/_metadata")):
        job.get_progress().result()
    with pytest.raises(CheckpointError, match="in use"):
        dispose(next(tmp_path.glob("*/chk-*")))
    job.end()
    for folder in list(tmp_path.glob("*/chk-*")):
        dispose(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["jobs"]
