"""Checkpoint storage on a local directory and on any other fsspec file system."""

import errno
import os
import pickle
import re
import shutil
from typing import Any

import fsspec
import pytest
from tests.storage.interruptions import before_metadata, killed

from penstock.base.errors import CheckpointError
from penstock.runtime.checkpoint.savepoints import read_recovery
from penstock.storage.file_store import JOB_MASTER_STATE_BYTES_MAX, FileCheckpointStore
from penstock.storage.metadata import (
    METADATA_NAME,
    CheckpointMetadata,
    KeyedStateHandle,
    OperatorState,
    OperatorSubtaskState,
    RevokedError,
)


@pytest.fixture
def directory(root):
    return root


def build_metadata(*files, checkpoint_id=1):
    handles: Any = {f"s{i}": (KeyedStateHandle(0, 127, (f,)),) for i, f in enumerate(files)}
    operator = OperatorState("id", None, "Map", 1, 128, {0: OperatorSubtaskState(handles, {})})
    return CheckpointMetadata(checkpoint_id, "job", "name", 0, False, (operator,))


def listing(directory):
    fs, root = fsspec.core.url_to_fs(directory)
    found = fs.find(root) if fs.exists(root) else []
    return sorted(re.sub("-[0-9a-f]{16}$", "", os.path.relpath(p, root)) for p in found)  # checksums in names left out


def test_write_complete_load_delete(directory):
    """H3, G11: state files, then the metadata; read back; deleted without a trace."""
    store = FileCheckpointStore(directory, "job", 0)
    file = store.write(1, "op-0-0-count", b"data")
    assert file.data is None
    assert store.read(file) == b"data"
    assert listing(directory) == ["job/chk-1/op-0-0-count"]
    metadata = build_metadata(file)
    path = store.complete(metadata)
    assert path.endswith("job/chk-1")
    assert listing(directory) == [f"job/chk-1/{METADATA_NAME}", "job/chk-1/op-0-0-count"]
    assert FileCheckpointStore(directory, "job", 0).load_checkpoint(1) == metadata
    store.verify(metadata)
    store.delete(store.listing())
    assert listing(directory) == []
    assert store.listing() == []
    store.delete([str(file.path)])


def test_a_file_system_whose_rmdir_deletes_all_below_loses_nothing(tmp_path, monkeypatch):
    """G11: that of HDFS does."""
    store = FileCheckpointStore(str(tmp_path), "job", 0)
    old, new = (store.write(checkpoint_id, "op-0-0-count", b"data") for checkpoint_id in (1, 2))
    monkeypatch.setattr(type(store._fs), "rmdir", lambda fs, path: shutil.rmtree(path))
    store.delete([str(old.path)])
    assert store.read(new) == b"data"
    assert listing(tmp_path) == ["job/chk-2/op-0-0-count"]


def test_what_is_written_again_is_never_torn(tmp_path, monkeypatch):
    """G11: not when the second run of a task dies as it writes what the first one has written."""
    store = FileCheckpointStore(str(tmp_path), "job", 0)
    file = store.write(1, "op-0-0-count", b"data")

    def half(path, data):
        with open(path, "wb") as torn:
            torn.write(data[:2])
        raise OSError("the task was killed")

    monkeypatch.setattr("penstock.storage.files.write_bytes", half)
    with pytest.raises(OSError, match="killed"):
        store.write(1, "op-0-0-count", b"data")
    assert store.read(file) == b"data"


def test_small_state_is_inline(directory):
    """G6: state up to the threshold is kept inside the metadata."""
    store = FileCheckpointStore(directory, "job", 4)
    assert store.write(1, "small", b"1234").data == b"1234"
    assert store.write(1, "large", b"12345").path is not None
    assert listing(directory) == ["job/chk-1/large"]


def test_missing_state_file(directory):
    """G11: a missing state file is an error that names it."""
    store = FileCheckpointStore(directory, "job", 0)
    file = store.write(1, "op-count", b"data")
    metadata = build_metadata(store.write(1, "op-other", b"more"), file)
    store.complete(metadata)
    fs, _ = fsspec.core.url_to_fs(directory)
    fs.rm_file(file.path)
    with pytest.raises(CheckpointError, match=r"op-count-[0-9a-f]+ cannot be read"):
        store.read(file)
    with pytest.raises(CheckpointError, match="op-count"):
        store.verify(metadata)


@pytest.mark.parametrize("damage", [b"dat", b"dada", b"", b"datas"])
def test_damaged_state_file(directory, damage):
    """G11: a state file of other length or content is an error that names it."""
    store = FileCheckpointStore(directory, "job", 0)
    file = store.write(1, "op-count", b"data")
    metadata = build_metadata(file)
    store.complete(metadata)
    fs, _ = fsspec.core.url_to_fs(directory)
    fs.pipe_file(file.path, damage)
    with pytest.raises(CheckpointError, match="op-count"):
        store.verify(metadata)


def test_missing_or_damaged_metadata(directory):
    """G11: a checkpoint without valid metadata is none."""
    store = FileCheckpointStore(directory, "job", 0)
    metadata = build_metadata(store.write(1, "op-count", b"data"))
    with pytest.raises(CheckpointError, match=METADATA_NAME):
        store.verify(metadata)
    path = store.complete(metadata)
    fs, _ = fsspec.core.url_to_fs(directory)
    fs.pipe_file(f"{path}/{METADATA_NAME}", b"PENSTOCK nonsense")
    with pytest.raises(CheckpointError, match=METADATA_NAME):
        store.load(f"{directory}/job/chk-1")
    fs.rm_file(f"{path}/{METADATA_NAME}")
    store.complete(build_metadata(checkpoint_id=1))
    with pytest.raises(CheckpointError, match="not what was written"):
        store.verify(metadata)


def test_unfinished_metadata_is_not_seen(directory, monkeypatch):
    """G11: metadata appears whole or not at all: a writer that dies before the rename leaves no checkpoint."""
    store = FileCheckpointStore(directory, "job", 0)
    metadata = build_metadata(store.write(1, "op-count", b"data"))
    with monkeypatch.context() as patched:
        before_metadata(patched, store, killed)
        with pytest.raises(OSError, match="killed"):
            store.complete(metadata)
    with pytest.raises(CheckpointError):
        store.load(f"{directory}/job/chk-1")
    store.complete(metadata)
    store.verify(metadata)


def test_what_is_complete_is_never_written_over(directory):
    """G11: not by a job master that does not know yet that another one has taken over."""
    store = FileCheckpointStore(directory, "job", 0)
    metadata = build_metadata(store.write(1, "op-count", b"data"))
    store.complete(metadata)
    with pytest.raises(CheckpointError, match="_metadata exists: the checkpoint was given up"):
        store.complete(build_metadata(checkpoint_id=1))
    assert store.load_checkpoint(1) == metadata
    assert listing(directory) == [f"job/chk-1/{METADATA_NAME}", "job/chk-1/op-count"]


@pytest.mark.parametrize("comes", ["before", "after", "never"])
def test_a_revoked_checkpoint_is_none(directory, comes):
    """G8, G11: whether its metadata was there already, comes after that, or never; a second call changes nothing."""
    store = FileCheckpointStore(directory, "job", 0)
    metadata = build_metadata(store.write(1, "op-count", b"data"))
    if comes == "before":
        store.complete(metadata)
    store.revoke(1)
    store.revoke(1)
    if comes == "after":
        with pytest.raises(CheckpointError, match="_metadata exists: the checkpoint was given up"):
            store.complete(metadata)
    with pytest.raises(RevokedError, match="chk-1/_metadata says that the checkpoint was given up"):
        store.load_checkpoint(1)
    assert store.take_over("name").checkpoints == ()
    recovery = read_recovery(store, "job", "name", 1)
    assert (recovery.completed, recovery.damaged, recovery.last_id) == ((), (), 1)


def test_without_a_directory_there_is_nothing_to_revoke():
    FileCheckpointStore(None, "job", 0).revoke(1)


def test_a_file_system_without_hard_links(directory, monkeypatch):
    """G11: there the metadata is renamed, if there is none."""
    monkeypatch.setattr(os, "link", lambda source, target: (_ for _ in ()).throw(OSError(errno.EPERM, "no links")))
    store = FileCheckpointStore(directory, "job", 0)
    store.complete(build_metadata(store.write(1, "op-count", b"data")))
    with pytest.raises(CheckpointError, match="_metadata exists: the checkpoint was given up"):
        store.complete(build_metadata(checkpoint_id=1))
    assert listing(directory) == [f"job/chk-1/{METADATA_NAME}", "job/chk-1/op-count"]


def test_store_travels(directory):
    """G7: the store is pickled to workers and works there."""
    store = pickle.loads(pickle.dumps(FileCheckpointStore(directory, "job", 0)))
    assert store.read(store.write(1, "x", b"data")) == b"data"


@pytest.mark.parametrize("name", ["counts/by user", "../../outside", "x" * 300, "ä €"])
def test_any_state_name_can_be_stored(directory, name):
    """D1, H3: the user's state names are free text: whatever they are, the file lies in its checkpoint's directory."""
    store = FileCheckpointStore(directory, "job", 0)
    file = store.write(1, f"op-0-0-{name}", b"data")
    assert store.read(file) == b"data"
    assert all(p.startswith("job/chk-1/") for p in listing(directory))
    assert len(listing(directory)) == 1


def test_without_directory():
    """G6: without a directory state travels in the acknowledgements, up to a limit that the error names."""
    store = FileCheckpointStore(None, "job", 0)
    file = store.write(1, "x", b"data")
    assert file.data == b"data"
    assert store.read(file) == b"data"
    store.complete(build_metadata(file))
    store.verify(build_metadata(file))
    assert store.listing() == []
    store.delete(["anything"])
    with pytest.raises(CheckpointError, match=r"state big .*set a directory"):
        store.write(1, "big", bytes(JOB_MASTER_STATE_BYTES_MAX + 1))
