"""Columns and arrays in mapped files: equal to what was stored, without a trace on the disk, safe when it is full."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.state.errors import StateError
from penstock.state.rocksdb import backend
from penstock.state.rocksdb.backend import MappedBlocks, RocksDBKeyedStateBackend

COLUMNS = pa.RecordBatch.from_pydict(
    {"a": pa.array([1, None, 3]), "b": pa.array(["x", "", None]), "c": pa.array([[1], None, []], pa.list_(pa.int8()))}
)


def test_columns_are_equal_and_their_file_is_gone(tmp_path: Path) -> None:
    """D3: also after the blocks are forgotten."""
    stored = MappedBlocks(tmp_path / "blocks", "join").store_columns(COLUMNS)
    assert stored.equals(COLUMNS)
    assert os.listdir(tmp_path / "blocks") == []
    taken = [column.take(pa.array([2, 0])) for column in stored.columns]
    assert taken[0].to_pylist() == [3, 1]


@pytest.mark.parametrize("can_reserve", [True, False])
def test_arrays_begin_with_zeros_and_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_reserve: bool
) -> None:
    """D3: also on systems that cannot reserve space."""
    if not can_reserve:
        monkeypatch.delattr(os, "posix_fallocate")
    allocate = MappedBlocks(tmp_path / "blocks", "join").allocate
    numbers, flags = allocate(1_000, np.int64), allocate(10, np.bool_)
    assert not numbers.any()
    numbers[::2] = 7
    flags[3] = True
    assert numbers.sum() == 3_500
    assert flags.tolist().index(True) == 3
    assert len(allocate(0, np.int64)) == 0
    assert os.listdir(tmp_path / "blocks") == []


def test_a_full_disk_is_an_error_of_the_operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D3, I2: with the directory and the remedy, and nothing stays behind."""

    def refuse(descriptor: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(backend, "reserve", refuse)
    stores = MappedBlocks(tmp_path / "blocks", "operator 'Rank'")
    with pytest.raises(
        StateError, match=r"operator 'Rank': 80 bytes .*No space left.*state\.backend\.rocksdb\.localdir"
    ):
        stores.allocate(10, np.int64)
    assert os.listdir(tmp_path / "blocks") == []


def test_columns_that_cannot_be_written(tmp_path: Path) -> None:
    """D3, I2."""
    stores = MappedBlocks(tmp_path / "blocks", "operator 'Join'")
    stores.store_columns(COLUMNS)
    (tmp_path / "blocks").rmdir()
    (tmp_path / "blocks").touch()
    with pytest.raises(StateError, match=r"operator 'Join': \d+ bytes of state cannot be written"):
        stores.store_columns(COLUMNS)


def test_only_a_backend_on_disk_stores_columns(tmp_path: Path) -> None:
    """D3: the heap leaves columns as they are."""
    backend = RocksDBKeyedStateBackend(128, tmp_path / "state")
    assert backend.store_columns(COLUMNS).equals(COLUMNS)
    assert not (tmp_path / "state" / "db").exists()
    backend.close()
