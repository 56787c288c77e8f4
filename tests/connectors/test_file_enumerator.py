"""Which files a source finds, in which order their splits go out, and what it remembers."""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import Any

import fsspec
import pytest

from penstock.base.errors import ConfigurationError
from penstock.base.time import Duration
from penstock.connectors.file.source import FileSource
from penstock.formats.file_format import StreamFormat
from penstock.runtime.connector import Boundedness, InputStatus
from penstock.testing.connectors import EnumeratorHost, SourceRun, read_source

LINES = StreamFormat.text_line_format()


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def values(*paths: Any) -> list[Any]:
    return read_source(FileSource.for_record_stream_format(LINES, *paths).build()).all_values


def test_directories_are_read_below_hidden_names_left_out(tmp_path: Path) -> None:
    root = tmp_path / "_in" / ".here"  # what is hidden above the path itself does not count
    write(root / "b.txt", "b\n")
    write(root / "a" / "x.txt", "a\n")
    write(root / ".part-0.inprogress.1", "no\n")
    write(root / "_temporary" / "y.txt", "no\n")
    write(root / "_SUCCESS", "")
    assert values(root) == ["a", "b"]
    assert values(root / "*.txt") == ["b"]
    assert values(root / "*") == ["a", "b"]
    assert values(root / "b.txt", root) == ["a", "b"]


def test_urls_are_read() -> None:
    fs = fsspec.filesystem("memory")
    with fs.open("/enumerator/a.txt", "wb") as file:
        file.write(b"1\n2\n")
    assert values("memory://enumerator") == ["1", "2"]


def test_nothing_there_fails(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        values(tmp_path / "none")
    with pytest.raises(FileNotFoundError, match="no file matches"):
        values(tmp_path / "*.csv")
    with pytest.raises(ConfigurationError, match="path"):
        FileSource.for_record_stream_format(LINES)


def test_splits_go_out_by_path_and_offset_in_order_of_requests(tmp_path: Path) -> None:
    write(tmp_path / "b", "1\n2\n3\n")
    write(tmp_path / "a", "4\n")
    host = EnumeratorHost(parallelism=3)
    source = FileSource.for_record_stream_format(LINES, tmp_path).set_split_size(4).build()
    enumerator = source.create_enumerator(host, None)
    enumerator.start()
    for subtask_index in (2, 0, 1):
        enumerator.handle_split_request(subtask_index)
    assert host.assigned == []  # nothing is known before the listing came
    host.run_background()
    found = [(subtask_index, Path(split.path).name, split.start, split.end) for subtask_index, split in host.assigned]
    assert found == [(2, "a", 0, 2), (0, "b", 0, 4), (1, "b", 4, 6)]
    enumerator.add_splits_back([host.assigned[2][1], host.assigned[0][1]], 2)
    assert [split.start for split in enumerator.snapshot_state(1)["pending"]] == [0, 4]
    for subtask_index in range(3):
        enumerator.handle_split_request(subtask_index)
    assert [subtask_index for subtask_index, _ in host.assigned[3:]] == [0, 1]
    assert host.finished == [2]


def test_splits_of_several_readers_come_back_in_order(tmp_path: Path) -> None:
    """G8: readers that begin again give back one after another; files named by time are still read in order of time."""
    for name in "abcdef":
        write(tmp_path / name, "1\n")
    host = EnumeratorHost(parallelism=2)
    enumerator = FileSource.for_record_stream_format(LINES, tmp_path).build().create_enumerator(host, None)
    enumerator.start()
    host.run_background()
    for subtask_index in (0, 1, 0, 1):
        enumerator.handle_split_request(subtask_index)
    for subtask_index in (0, 1):
        enumerator.add_splits_back([split for to, split in host.assigned if to == subtask_index], subtask_index)
    assert "".join(Path(split.path).name for split in enumerator.snapshot_state(1)["pending"]) == "abcdef"
    for _ in range(6):
        enumerator.handle_split_request(1)
    assert "".join(Path(split.path).name for _, split in host.assigned[4:]) == "abcdef"


def test_watching_finds_each_file_once_across_restarts(tmp_path: Path) -> None:
    """G8: what was seen is part of the state, so nothing is read twice or missed."""
    directory = tmp_path / "in"
    builder = FileSource.for_record_stream_format(LINES, directory)
    source = builder.monitor_continuously(datetime.timedelta(seconds=2)).build()
    assert source.boundedness is Boundedness.CONTINUOUS_UNBOUNDED
    cluster = SourceRun(source)
    expected: list[str] = []
    for i in range(6):
        for _ in range(4):
            assert cluster.poll(0, 1) is not InputStatus.END_OF_INPUT
            cluster.deliver()
        write(directory / f"{9 - i}.txt", f"x{i}\ny{i}\n")  # names do not tell the order in which files come
        if i % 2:
            cluster.restart()
        for _ in range(6):
            cluster.poll(0, 1)
            cluster.deliver()
            if i > 2:
                cluster.restart()
        expected += [f"x{i}", f"y{i}"]
        assert cluster.all_values == expected
    cluster.deliver()
    assert cluster.master.background[0][2] == 2_000
    os.utime(directory / "9.txt", (1, 1))
    cluster.deliver()
    assert cluster.poll(0, 10) is InputStatus.NOTHING_AVAILABLE
    cluster.close()


def test_builder_checks_its_numbers(tmp_path: Path) -> None:
    builder = FileSource.for_record_stream_format(LINES, tmp_path)
    with pytest.raises(ConfigurationError, match="positive"):
        builder.monitor_continuously(Duration.of_millis(0))
    with pytest.raises(ConfigurationError, match="positive"):
        builder.set_split_size(0)
    with pytest.raises(ConfigurationError, match="StreamFormat"):
        FileSource.for_record_stream_format("csv", tmp_path)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="BulkFormat"):
        FileSource.for_bulk_file_format(LINES, tmp_path)  # type: ignore[arg-type]
    assert builder.monitor_continuously(5).process_static_file_set().build().boundedness is Boundedness.BOUNDED
