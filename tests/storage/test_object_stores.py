"""Files in Google Cloud Storage, Azure and HDFS, and errors of their clients (G8)."""

from __future__ import annotations

import errno
import pickle
import random
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from tests.servers.object_stores import PACKAGES, ObjectStore, object_store

from penstock.base.errors import ConfigurationError
from penstock.codecs import file_systems
from penstock.codecs.file_systems import _Translating, rename, url_to_fs
from penstock.codecs.hadoop_files import HadoopFiles
from penstock.connectors.file import filesystem
from penstock.storage.files import create, read_file, write_named


class StoreError(Exception):
    """An error as the clients of object stores raise them."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.code = status


class FailingStore(MemoryFileSystem):  # type: ignore[misc]
    """A file system that fails with `status`."""

    cachable = False
    status = 503

    def cat_file(self, path: str, start: Any = None, end: Any = None, **settings: Any) -> bytes:
        raise StoreError(self.status)

    def open(self, path: str, mode: str = "rb", **settings: Any) -> Any:
        return FailingFile()


class FailingFile:
    def _fetch_range(self, start: int, end: int) -> bytes:
        raise StoreError(503)


@pytest.mark.parametrize(
    ("status", "kind", "number"),
    [
        (503, OSError, errno.EIO),
        (404, FileNotFoundError, errno.ENOENT),
        (403, PermissionError, errno.EACCES),
        (416, OSError, errno.EINVAL),
    ],
)
def test_errors_of_a_client_are_errors_of_the_operating_system(status: int, kind: type[OSError], number: int) -> None:
    store: Any = type("Store", (_Translating, FailingStore), {"errors": (StoreError,), "status": status})()
    with pytest.raises(kind, match=f"StoreError: status {status}") as raised:
        store.cat_file("/x")
    assert raised.value.errno == number
    assert isinstance(raised.value.__cause__, StoreError)


def test_errors_of_an_open_file_are_too() -> None:
    store: Any = type("Store", (_Translating, FailingStore), {"errors": (StoreError,)})()
    with pytest.raises(OSError, match="StoreError: status 503"):
        store.open("/x")._fetch_range(0, 1)


def test_urls_of_hdfs_keep_their_host() -> None:
    for url in ("webhdfs://me@somewhere:9870/a/b", "webhdfs://somewhere:9870/a", "webhdfs://somewhere/a"):
        fs, path = url_to_fs(url)
        assert isinstance(fs, HadoopFiles)
        assert fs.unstrip_protocol(path) == url
        assert filesystem.absolute_path(url) == url


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "adlfs", None)
    monkeypatch.delitem(vars(file_systems), "AzureFiles", raising=False)
    with pytest.raises(
        ConfigurationError, match="abfs:// needs adlfs: pip install adlfs, on the client and on every worker"
    ):
        url_to_fs("abfs://container/path")


@pytest.fixture(scope="module", params=list(PACKAGES))
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(request.param, tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.fixture
def opened(server: ObjectStore) -> tuple[Any, str]:
    return url_to_fs(f"{server.new_bucket()}/folder")


def test_a_name_is_given_once_among_many(opened: tuple[Any, str]) -> None:
    """Drivers depose each other by this."""
    fs, folder = opened
    write_named(fs, folder, "first", b"")
    for attempt in range(5):
        barrier = Barrier(4)
        winners: list[int] = []

        def compete(number: int, attempt: int = attempt, barrier: Barrier = barrier, winners: Any = winners) -> None:
            barrier.wait()
            if create(fs, folder, f"master-{attempt}", str(number).encode()):
                winners.append(number)

        threads = [Thread(target=compete, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(winners) == 1
        assert fs.cat_file(f"{folder}/master-{attempt}") == str(winners[0]).encode()
    names = ("first", *(f"master-{attempt}" for attempt in range(5)))
    assert sorted(fs.ls(folder, detail=False)) == [f"{folder}/{name}" for name in names]


def test_a_file_is_replaced_as_a_whole(opened: tuple[Any, str]) -> None:
    fs, folder = opened
    for text in (b"1", b"22", b""):
        write_named(fs, folder, "mark", text)
        assert fs.cat_file(f"{folder}/mark") == text
        assert read_file(fs, f"{folder}/mark", len(text)) == text
    with pytest.raises(FileExistsError):
        write_named(fs, folder, "mark", b"3", replaces=False)
    assert fs.ls(folder, detail=False) == [f"{folder}/mark"]
    with pytest.raises(FileNotFoundError):
        read_file(fs, f"{folder}/none", 3)


def test_a_rename_replaces_or_refuses(opened: tuple[Any, str]) -> None:
    fs, folder = opened
    write_named(fs, folder, "a", b"1")
    write_named(fs, folder, "b", b"2")
    with pytest.raises(FileExistsError):
        rename(fs, f"{folder}/a", f"{folder}/b", replaces=False)
    assert fs.cat_file(f"{folder}/b") == b"2"
    rename(fs, f"{folder}/a", f"{folder}/b")
    assert fs.cat_file(f"{folder}/b") == b"1"
    assert fs.ls(folder, detail=False) == [f"{folder}/b"]


#: Of aiohttp, below both clients.
_LARGE_BODY = "ignore:Sending a large body directly:ResourceWarning"


@pytest.mark.filterwarnings(_LARGE_BODY)
def test_large_files_are_written_and_read_in_parts(opened: tuple[Any, str]) -> None:
    fs, folder = opened
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    data = chance.randbytes(chance.randrange(11 << 20, 13 << 20))
    url = fs.unstrip_protocol(f"{folder}/{uuid.uuid4().hex}")
    with filesystem.create(url) as file:
        begin = 0
        while begin < len(data):
            size = chance.randrange(1, 4 << 20)
            file.write(data[begin : begin + size])
            begin += size
    again, path = pickle.loads(pickle.dumps(fs)), url_to_fs(url)[1]
    assert again.cat_file(path) == data
    with filesystem.open_input(url) as reading:
        begin = chance.randrange(len(data))
        reading.seek(begin)
        assert reading.read(1 << 20) == data[begin : begin + (1 << 20)]
    assert [info.size_bytes for info in filesystem.list_files(fs.unstrip_protocol(folder))] == [len(data)]


def test_a_sink_renames_its_files(server: ObjectStore, tmp_path: Path) -> None:
    from penstock.common import Configuration, Encoder, WatermarkStrategy
    from penstock.datastream import StreamExecutionEnvironment
    from penstock.datastream.connectors.file_system import FileSink, FileSource, StreamFormat

    bucket = server.new_bucket()
    configuration = Configuration.from_dict(
        {
            "execution.target": "local",
            "execution.checkpointing.interval": "50 ms",
            "execution.checkpointing.dir": f"{bucket}/checkpoints",
        }
    )
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    numbers = env.from_collection(list(range(1000))).map(str)
    numbers.sink_to(FileSink.for_row_format(f"{bucket}/out", Encoder.simple_string_encoder()).build())
    env.execute("write")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), f"{bucket}/out").build()
    lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "lines")
    assert sorted(lines.collect(), key=int) == [str(number) for number in range(1000)]
