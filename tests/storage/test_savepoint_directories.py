"""Savepoints as they lie in a file system: whole, movable, never half there; and checkpoints of other jobs."""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import Any

import fsspec
import msgspec
import pytest
from tests.storage.interruptions import before_metadata, killed

from penstock.base.errors import CheckpointError
from penstock.storage.file_store import FileCheckpointStore
from penstock.storage.files import absolute_url
from penstock.storage.metadata import (
    METADATA_NAME,
    CheckpointMetadata,
    KeyedStateHandle,
    OperatorState,
    OperatorStateHandle,
    OperatorSubtaskState,
    StateFile,
    checksum,
)
from penstock.storage.savepoints import CLAIMED_NAME, claim_savepoint, empty_savepoint, release_savepoint


def files_below(path: str) -> list[str]:
    fs, directory = fsspec.core.url_to_fs(path)
    return sorted(posixpath.relpath(p, directory) for p in fs.find(directory)) if fs.exists(directory) else []


def move(source: str, target: str) -> None:
    fs, directory = fsspec.core.url_to_fs(source)
    fs.makedirs(posixpath.dirname(fsspec.core.url_to_fs(target)[1]), exist_ok=True)
    fs.copy(directory, fsspec.core.url_to_fs(target)[1], recursive=True)
    fs.rm(directory, recursive=True)


def build_metadata(
    *keyed: StateFile, split: StateFile | None = None, coordinator: StateFile | None = None, **more: Any
) -> CheckpointMetadata:
    """Savepoint 7 of one operator, with a history of keyed files, an operator state and an enumerator."""
    lists: dict[str, tuple[OperatorStateHandle, ...]] = (
        {} if split is None else {"list": (OperatorStateHandle("split", 1, split),)}
    )
    state = OperatorSubtaskState({"count": (KeyedStateHandle(0, 127, keyed),)}, lists)
    operator = OperatorState("id", "uid", "Count", 1, 128, {0: state}, (), coordinator)
    values = {"checkpoint_id": 7, "is_savepoint": True, **more}
    return CheckpointMetadata(job_id="job", job_name="name", timestamp_ms=1, operators=(operator,), **values)


def contents(store: FileCheckpointStore, metadata: CheckpointMetadata) -> list[bytes]:
    return [store.read(file) for file in metadata.state_files()]


def inline(data: bytes) -> StateFile:
    return StateFile(len(data), checksum(data), data=data)


def savepoint_in(root: str, **more: Any) -> tuple[FileCheckpointStore, str]:
    """A savepoint that shares one file with a checkpoint, has one of its own, and two small inline states."""
    store = FileCheckpointStore(f"{root}/checkpoints", "job", 4)
    path = absolute_url(f"{root}/savepoints/savepoint-1")
    shared = store.write(3, "count", b"written by checkpoint 3")
    own = store.write(7, "count", b"written for the savepoint", path)
    small = store.write(7, "list", b"tiny", path)
    metadata = build_metadata(shared, own, split=small, coordinator=inline(b"enumerator"), external_path=path, **more)
    assert store.complete(metadata, path) == path
    return store, path


ALL = [b"enumerator", b"written by checkpoint 3", b"written for the savepoint", b"tiny"]


def test_state_goes_into_the_savepoint(root: str) -> None:
    """H1: what tasks write for a savepoint lies in its directory and nowhere else, small state in its metadata."""
    store = FileCheckpointStore(f"{root}/checkpoints", "job", 4)
    path = absolute_url(f"{root}/savepoints/one")
    large = store.write(7, "large state", b"12345", path)
    assert store.write(7, "small", b"1234", path).data == b"1234"
    assert len(files_below(path)) == 1
    assert files_below(f"{root}/checkpoints") == []
    assert store.read(large) == b"12345"
    assert store.listing() == [], "it is none of the job's own files"


def test_a_savepoint_is_self_contained(root: str) -> None:
    """H1: files that the savepoint shares with checkpoints are copied into it; it is whole when all checkpoints are
    gone."""
    store, path = savepoint_in(root)
    names = files_below(path)
    assert METADATA_NAME in names
    assert len(names) == 3
    store.delete(store.listing())
    assert files_below(f"{root}/checkpoints") == []
    other = FileCheckpointStore(f"{root}/other", "another-job", 4)
    loaded = other.load(path)
    assert contents(other, loaded) == ALL
    other.verify(loaded)


def test_the_running_job_keeps_its_own_files(root: str) -> None:
    """H1, G6: completing a savepoint changes nothing of the checkpoint that it shares a file with."""
    store, _ = savepoint_in(root)
    (shared,) = store.listing()
    assert "/chk-3/" in shared
    assert store.read(StateFile(23, checksum(ALL[1]), path=shared)) == ALL[1]


@pytest.mark.parametrize("directory", ["own", "none"])
def test_a_savepoint_can_be_moved(root: str, directory: str) -> None:
    """H1: the directory may be moved: it is loaded from where it is, by any job."""
    store, path = savepoint_in(root)
    store.delete(store.listing())
    move(path, f"{root}/archive/of/2024")
    with pytest.raises(CheckpointError, match="savepoint-1"):
        store.load(path)
    other = FileCheckpointStore(f"{root}/other" if directory == "own" else None, "another-job", 4)
    loaded = other.load(f"{root}/archive/of/2024")
    assert contents(other, loaded) == ALL
    assert all(file.path is None or "/archive/of/2024/" in file.path for file in loaded.state_files())
    assert loaded.external_path is not None
    assert loaded.external_path.endswith("/archive/of/2024")


def test_in_memory_paths_are_complete(root: str) -> None:
    """H1: what `load` gives can be read by any process: its paths say the file system and the whole way."""
    _, path = savepoint_in(root)
    paths = [f.path for f in FileCheckpointStore(None, "x", 4).load(path).state_files() if f.path is not None]
    assert paths
    assert all("://" in p for p in paths)


@pytest.mark.parametrize("form", ["{}", "{}/", "{}/" + METADATA_NAME])
def test_forms_of_a_path(root: str, form: str) -> None:
    """H4: a savepoint is named by its directory, or by its metadata file."""
    store, path = savepoint_in(root)
    assert contents(store, store.load(form.format(path))) == ALL


def test_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H1, H4: a relative path is below the working directory of whoever names it, and stays there when that changes."""
    monkeypatch.chdir(tmp_path)
    assert absolute_url("savepoints/") == f"{tmp_path}/savepoints"
    _, path = savepoint_in("here")
    assert path == f"{tmp_path}/here/savepoints/savepoint-1"
    loaded = FileCheckpointStore(None, "other", 4).load("here/savepoints/savepoint-1")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert contents(FileCheckpointStore(None, "other", 4), loaded) == ALL


def test_without_a_checkpoint_directory(root: str) -> None:
    """H1: a job that keeps its checkpoints in the job master writes savepoints to files all the same."""
    store = FileCheckpointStore(None, "job", 4)
    path = absolute_url(f"{root}/savepoints/one")
    own = store.write(7, "count", b"for the savepoint", path)
    shared = store.write(3, "count", b"kept in the job master")
    assert shared.data is not None
    metadata = build_metadata(shared, own, external_path=path)
    store.complete(metadata, path)
    other = FileCheckpointStore(f"{root}/other", "other", 4)
    assert contents(other, other.load(path)) == [b"kept in the job master", b"for the savepoint"]


def test_the_savepoint_that_ends_the_job_is_among_its_checkpoints(root: str) -> None:
    """H2, G8: the last savepoint is found by a recovery, whole, and its state is read from the savepoint's directory; a
    plain one is not there."""
    store, _ = savepoint_in(root)
    assert not [p for p in store.listing() if p.endswith(METADATA_NAME)]
    store, path = savepoint_in(f"{root}/ending", ends_job=True)
    assert [p for p in store.listing() if p.endswith(f"chk-7/{METADATA_NAME}")]
    again = FileCheckpointStore(f"{root}/ending/checkpoints", "job", 4)
    last = again.load_checkpoint(7)
    assert last.ends_job
    assert last.external_path == path
    again.verify(last)
    assert contents(again, last) == ALL


def test_a_savepoint_that_ends_the_job_is_the_persons_first(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """H2, G11: the savepoint is whole in its own directory before a recovery can find it: whoever finds it may commit
    what it holds."""
    store = FileCheckpointStore(f"{root}/checkpoints", "job", 4)
    path = absolute_url(f"{root}/savepoints/one")
    metadata = build_metadata(store.write(7, "count", b"for the savepoint", path), external_path=path, ends_job=True)
    moved: list[str] = []

    def second_fails(target: str) -> None:
        moved.append(target)
        if len(moved) == 2:
            killed(target)

    with monkeypatch.context() as patched:
        before_metadata(patched, store, second_fails)
        with pytest.raises(OSError, match="killed"):
            store.complete(metadata, path)
    assert [posixpath.basename(posixpath.dirname(target)) for target in moved] == ["one", "chk-7"]
    with pytest.raises(CheckpointError):
        store.load_checkpoint(7)
    assert contents(store, store.load(path)) == [b"for the savepoint"]


def test_a_savepoint_appears_whole_or_not_at_all(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """H1, G11: a writer that dies before the metadata is in place leaves nothing that could be begun from."""
    store = FileCheckpointStore(f"{root}/checkpoints", "job", 4)
    path = absolute_url(f"{root}/savepoints/one")
    metadata = build_metadata(store.write(7, "count", b"for the savepoint", path))
    with monkeypatch.context() as patched:
        before_metadata(patched, store, killed)
        with pytest.raises(OSError, match="killed"):
            store.complete(metadata, path)
    with pytest.raises(CheckpointError, match=METADATA_NAME):
        store.load(path)
    store.complete(metadata, path)
    other = FileCheckpointStore(None, "other", 4)
    other.verify(other.load(path))


def test_discard_takes_what_is_unfinished_and_leaves_what_is_whole(root: str) -> None:
    """H1: a savepoint that was given up leaves no file; one that is complete is never discarded."""
    store, path = savepoint_in(root)
    store.discard_savepoint(path)
    assert contents(store, store.load(path)) == ALL
    unfinished = absolute_url(f"{root}/savepoints/savepoint-2")
    store.write(8, "count", b"for nothing", unfinished)
    store.discard_savepoint(unfinished)
    assert files_below(unfinished) == []
    store.discard_savepoint(unfinished)
    store.discard_savepoint(absolute_url(f"{root}/savepoints/never-begun"))
    assert files_below(path), "its neighbour stays"


def test_sweeping_the_job_leaves_savepoints(root: str) -> None:
    """H1: nothing of a savepoint is among the files that a job deletes, also below the same directory."""
    store = FileCheckpointStore(root, "job", 4)
    path = absolute_url(f"{root}/savepoint-1")
    store.complete(build_metadata(store.write(7, "count", b"for the savepoint", path), external_path=path), path)
    store.delete(store.listing())
    assert contents(store, store.load(path)) == [b"for the savepoint"]


def test_claimed_savepoints_go(root: str) -> None:
    """H4: a savepoint that a job has claimed is deleted without a trace, twice if need be."""
    store, path = savepoint_in(root)
    for _ in range(2):
        store.delete_savepoint(path)
        assert files_below(path) == []
    with pytest.raises(CheckpointError):
        store.load(path)


@pytest.mark.parametrize("is_own", [True, False])
def test_a_directory_that_the_job_made_goes_with_everything_in_it(tmp_path: Path, is_own: bool) -> None:
    """What its metadata does not name, too, as what a task wrote that was tried again; another's file stays."""
    job_id = f"{'0123456789ab' if is_own else 'ba9876543210'}{'c' * 20}"
    path = savepoint_at(tmp_path / "savepoint-012345-6789ab-1")
    (tmp_path / "savepoint-012345-6789ab-1" / "unnamed").touch()
    FileCheckpointStore(None, job_id, 0).delete_savepoint(path)
    assert files_below(path) == ([] if is_own else ["unnamed"])


def test_a_retained_checkpoint_of_another_job(root: str) -> None:
    """H4: a checkpoint is loaded by its directory, with state in directories of older ones, by a store of another job,
    which verifies it without taking it for its own."""
    store = FileCheckpointStore(f"{root}/checkpoints", "job", 4)
    old, new = store.write(3, "count", b"of checkpoint 3"), store.write(7, "count", b"of checkpoint 7")
    metadata = build_metadata(old, new, is_savepoint=False)
    path = store.complete(metadata)
    other = FileCheckpointStore(f"{root}/checkpoints", "other", 4)
    fs, _ = fsspec.core.url_to_fs(root)
    loaded = other.load(fs.unstrip_protocol(path))
    assert contents(other, loaded) == [b"of checkpoint 3", b"of checkpoint 7"]
    assert (loaded.job_id, loaded.checkpoint_id, loaded.is_savepoint) == ("job", 7, False)
    other.verify(loaded)
    with pytest.raises(CheckpointError):
        other.load_checkpoint(7)
    assert loaded.operators[0].uid == "uid"
    assert msgspec.structs.replace(loaded, operators=(), external_path=None) == msgspec.structs.replace(
        metadata, operators=()
    )


@pytest.mark.parametrize("damage", ["state missing", "state cut", "metadata missing", "metadata damaged"])
def test_damaged_savepoints(root: str, damage: str) -> None:
    """H4, G11: a savepoint of which something is missing or changed is an error that names it."""
    _, path = savepoint_in(root)
    other = FileCheckpointStore(f"{root}/other", "other", 4)
    fs, directory = fsspec.core.url_to_fs(path)
    state = next(p for p in fs.find(directory) if not p.endswith(METADATA_NAME))
    if damage == "state missing":
        fs.rm_file(state)
    elif damage == "state cut":
        fs.pipe_file(state, b"cut")
    elif damage == "metadata missing":
        fs.rm_file(posixpath.join(directory, METADATA_NAME))
    else:
        fs.pipe_file(posixpath.join(directory, METADATA_NAME), b"PENSTOCK nonsense and more of it")
    with pytest.raises(CheckpointError) as caught:
        other.verify(other.load(path))
    assert posixpath.basename(state if damage.startswith("state") else METADATA_NAME) in str(caught.value)


def savepoint_at(path: Path) -> str:
    FileCheckpointStore(None, "job-0", 0).complete(build_metadata(), str(path))
    return str(path)


def test_of_two_that_see_nothing_at_a_path_one_takes_it(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have looked before either has claimed it."""
    path = f"{root}/savepoint"
    monkeypatch.setattr("penstock.storage.savepoints.is_taken", lambda path: False)
    claim_savepoint(path, "one")
    with pytest.raises(CheckpointError, match="already exists"):
        claim_savepoint(path, "another")
    release_savepoint(path, "another")
    with pytest.raises(CheckpointError, match="already exists"):
        claim_savepoint(path, "another")
    release_savepoint(path, "one")
    claim_savepoint(path, "another")


def test_the_savepoint_of_another_job_is_not_emptied(root: str) -> None:
    """A job that cleans up a path deletes what is its own, and nothing where another has been quicker."""
    _, path = savepoint_in(root)
    before = files_below(path)
    with pytest.raises(CheckpointError, match=r"job 'name' \(job\) has meanwhile written .* left unchanged"):
        empty_savepoint(path, "other")
    assert files_below(path) == before
    empty_savepoint(path, "job")
    assert files_below(path) == []


def test_a_savepoint_is_claimed_once(tmp_path: Path) -> None:
    """H4: whoever begins from what another job deletes hears of that, and of which job it is."""
    path = savepoint_at(tmp_path / "sp")
    FileCheckpointStore(None, "job-1", 0).load(path, "words", claims=True)
    for claims in (True, False):
        with pytest.raises(
            CheckpointError, match=rf"{path} is claimed by job 'words' \(job-1\), which deletes it: begin"
        ):
            FileCheckpointStore(None, "job-2", 0).load(path, "other", claims)
    (tmp_path / "sp" / CLAIMED_NAME).unlink()
    FileCheckpointStore(None, "job-2", 0).load(path, "other", claims=True)


def test_a_job_that_is_started_again_has_claimed_its_savepoint(tmp_path: Path) -> None:
    """H4, E7: it has another id and the same name."""
    path = savepoint_at(tmp_path / "sp")
    for job_id in ("job-1", "job-2"):
        FileCheckpointStore(None, job_id, 0).load(path, "words", claims=True)


def test_savepoints_that_nobody_claims_are_for_all(tmp_path: Path) -> None:
    """H4: and readers look at claimed ones too, as long as they are there."""
    path = savepoint_at(tmp_path / "sp")
    for number in range(3):
        FileCheckpointStore(None, f"job-{number}", 0).load(path, f"name {number}")
    assert not (tmp_path / "sp" / CLAIMED_NAME).exists()
    FileCheckpointStore(None, "job-1", 0).load(path, "words", claims=True)
    FileCheckpointStore(None, "", 0).load(path)


def test_a_claim_goes_with_its_savepoint(tmp_path: Path) -> None:
    """H4."""
    path = savepoint_at(tmp_path / "sp")
    store = FileCheckpointStore(None, "job-1", 0)
    store.load(path, "words", claims=True)
    store.delete_savepoint(path)
    assert not (tmp_path / "sp").exists()
