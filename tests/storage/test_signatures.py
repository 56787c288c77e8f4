"""Signed checkpoints: what a job with a key begins from, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.base.configuration import Configuration
from penstock.base.errors import CheckpointError, ConfigurationError, JobExecutionError
from penstock.base.restart_strategy import RestartStrategies
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.drivers.worker_storage import StorageSettings
from penstock.state_processor import SavepointReader, sign_savepoint
from penstock.storage.file_store import FileCheckpointStore
from penstock.storage.files import FILE_MARK, parse_signing_key
from penstock.storage.metadata import (
    METADATA_NAME,
    CheckpointMetadata,
    KeyedStateHandle,
    OperatorState,
    OperatorSubtaskState,
    StateFile,
    checksum,
    encode_metadata,
)

KEY, OTHER = b"0123456789abcdef", b"fedcba9876543210"
JOB = "a" * 32


def build_metadata(*files: StateFile) -> CheckpointMetadata:
    handles = tuple(KeyedStateHandle(0, 127, (file,)) for file in files)
    operator = OperatorState("op", None, "op", 1, 128, {0: OperatorSubtaskState({"count": handles})})
    return CheckpointMetadata(1, JOB, "words", 1, False, (operator,))


def written(root: Path, key: bytes | None) -> Path:
    """A checkpoint with a file and inline state."""
    store = FileCheckpointStore(str(root), JOB, 4, key=key)
    store.complete(build_metadata(store.write(1, "large", b"large state"), store.write(1, "small", b"s")))
    return root / JOB / "chk-1"


def read(folder: Path, key: bytes | None) -> list[bytes]:
    store = FileCheckpointStore(None, "b" * 32, 0, key=key)
    metadata = store.load(str(folder))
    store.verify(metadata)
    return [store.read(file) for file in metadata.state_files()]


@pytest.mark.parametrize(("writes", "reads"), [(KEY, KEY), (None, None), (KEY, None)])
def test_what_was_written_is_read(writes: bytes | None, reads: bytes | None, tmp_path: Path) -> None:
    """Without a key, signatures are passed over."""
    assert read(written(tmp_path, writes), reads) == [b"large state", b"s"]


@pytest.mark.parametrize(("writes", "reads"), [(None, KEY), (OTHER, KEY)])
def test_what_others_wrote_is_refused(writes: bytes | None, reads: bytes, tmp_path: Path) -> None:
    """S12: a valid checksum, and no signature or a foreign one."""
    with pytest.raises(
        CheckpointError, match=r"not signed|signature that is not of penstock\.checkpoints\.signing-key"
    ):
        read(written(tmp_path, writes), reads)


def state_file(folder: Path) -> Path:
    return next(path for path in folder.iterdir() if path.name != METADATA_NAME)


def forge_file(folder: Path) -> None:
    """Another state, named by metadata that is made anew: all checksums hold, and the signature of metadata is old."""
    file = state_file(folder)
    file.write_bytes(b"payload of an attacker")
    store = FileCheckpointStore(None, JOB, 4)
    found = store.load(str(folder))
    data = file.read_bytes()
    forged = found.with_files(
        lambda one: one if one.path is None else StateFile(len(data), checksum(data), path=str(file))
    )
    signature = (folder / METADATA_NAME).read_bytes()[-40:]
    (folder / METADATA_NAME).write_bytes(encode_metadata(forged) + signature)


def forge_only_metadata(folder: Path) -> None:
    found = FileCheckpointStore(None, JOB, 4).load(str(folder))
    (folder / METADATA_NAME).write_bytes(encode_metadata(found))


def change_a_bit(folder: Path) -> None:
    data = bytearray((folder / METADATA_NAME).read_bytes())
    data[-1] ^= 1
    (folder / METADATA_NAME).write_bytes(data)


def take_the_signature_of_a_file(folder: Path) -> None:
    file = state_file(folder)
    file.write_bytes(file.read_bytes()[40:])


def exchange_for_another_signed_file(folder: Path) -> None:
    store = FileCheckpointStore(str(folder / "other"), JOB, 4, key=KEY)
    other = store.write(1, "large", b"other state")
    state_file_ = next(path for path in folder.iterdir() if path.is_file() and path.name != METADATA_NAME)
    state_file_.write_bytes(Path(str(other.path)).read_bytes())


@pytest.mark.parametrize(
    "change",
    [forge_file, forge_only_metadata, change_a_bit, take_the_signature_of_a_file, exchange_for_another_signed_file],
)
def test_what_was_changed_is_refused(change: Callable[[Path], None], tmp_path: Path) -> None:
    """S12."""
    folder = written(tmp_path, KEY)
    change(folder)
    with pytest.raises(CheckpointError):
        read(folder, KEY)


def test_a_savepoint_is_signed_for_a_key_afterwards(tmp_path: Path) -> None:
    """A job that has run without a key goes on with one."""
    folder = written(tmp_path / "root", None)
    signed = sign_savepoint(str(folder), str(tmp_path / "signed"), KEY.decode())
    assert read(Path(signed), KEY) == [b"large state", b"s"]
    assert state_file(Path(signed)).read_bytes().startswith(FILE_MARK)
    with pytest.raises(CheckpointError, match="not empty"):
        sign_savepoint(str(folder), str(tmp_path / "signed"), KEY.decode())
    with pytest.raises(ConfigurationError, match="give a key"):
        sign_savepoint(str(folder), str(tmp_path / "more"))


def test_a_key_is_long_and_shown_nowhere() -> None:
    with pytest.raises(ConfigurationError, match="has 5 characters"):
        parse_signing_key("short")
    options = Configuration.from_dict({"penstock.checkpoints.signing-key": KEY.decode()})
    assert KEY.decode() not in repr(StorageSettings.of(options, JOB))
    assert KEY.decode() not in str(options)


def environment(root: Path, **options: Any) -> StreamExecutionEnvironment:
    values = {
        "execution.target": "local",
        "execution.checkpointing.interval": "20 ms",
        "execution.checkpointing.dir": str(root / "chk"),
        "execution.checkpointing.data-inline-threshold": "0",
        "execution.checkpointing.local-backup.enabled": "true",
        **{key.replace("__", ".").replace("_", "-"): value for key, value in options.items()},
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(values))
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 10))
    return env


def fails_once(flag: Path) -> Callable[[int], int]:
    def check(number: int) -> int:
        if number == 150 and not flag.exists():
            flag.touch()
            raise ConnectionError("once")
        return number

    return check


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_job_with_a_key_recovers_and_goes_on_from_its_savepoints(backend: str, tmp_path: Path) -> None:
    """S12: through a failure, a signed savepoint, and one whose key is another."""

    def job(**more: Any) -> Any:
        env = environment(tmp_path, state__backend__type=backend, **more)
        source = DataGeneratorSource(lambda i: i, None, rate_per_second=1_000)
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "n").uid("n")
        numbers.map(fails_once(tmp_path / "failed")).key_by(lambda n: n % 5).sum().uid("sum").filter(
            lambda n: False
        ).print()
        return env.execute_async("signed")

    first = job(penstock__checkpoints__signing_key=KEY.decode())
    while not (tmp_path / "failed").exists() or first.status().name != "RUNNING":
        first.get_progress().result()
    path = first.stop_with_savepoint(False, str(tmp_path / "savepoints")).result(60)
    first.get_job_execution_result().result(60)
    assert all(one.read_bytes().startswith(FILE_MARK) for one in Path(path).iterdir() if one.name != METADATA_NAME)
    assert SavepointReader.read(path).job_name == "signed"
    begins = {"execution__state_recovery__path": path}
    second = job(penstock__checkpoints__signing_key=KEY.decode(), **begins)
    while not list((tmp_path / "chk").glob("*/chk-*/_metadata")):
        second.get_progress().result()
    second.end()
    with pytest.raises(JobExecutionError, match="signature that is not of"):
        job(penstock__checkpoints__signing_key=OTHER.decode(), **begins).get_job_execution_result().result(60)
