"""Functions, readers and writers that hear of checkpoints, in each execution mode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.datastream.environments import local_environment

from penstock.base.errors import JobExecutionError
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.collect import DiscardingSink
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import (
    CheckpointedFunction,
    CheckpointListener,
    FilterFunction,
    KeyedProcessFunction,
    MapFunction,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from penstock.runtime.connector import SinkWriter, SinkWriterContext, SourceReader, SourceReaderContext

RECORDS = 400


class Notes(CheckpointListener):
    """Notes in a file what it hears."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, what: str, checkpoint_id: int) -> None:
        with self.path.open("a") as file:
            file.write(f"{what} {checkpoint_id}\n")

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.note("complete", checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self.note("aborted", checkpoint_id)


class Mapping(Notes, MapFunction):
    def map(self, value: Any) -> Any:
        return value


class Filtering(Notes, FilterFunction):
    def filter(self, value: Any) -> bool:
        return True


class Processing(Notes, KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value


class NamedAlike(MapFunction, CheckpointedFunction):
    """Listens without the base class."""

    def __init__(self, path: Path) -> None:
        self._notes = Notes(path)

    def initialize_state(self, context: Any) -> None: ...

    def snapshot_state(self, context: Any) -> None: ...

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._notes.notify_checkpoint_complete(checkpoint_id)

    def map(self, value: Any) -> Any:
        return value


class ListeningSource(DataGeneratorSource):
    """Its readers listen."""

    path: Path

    def create_reader(self, context: SourceReaderContext) -> SourceReader[Any, Any]:
        reader: Any = super().create_reader(context)
        notes = Notes(self.path)
        reader.notify_checkpoint_complete = notes.notify_checkpoint_complete
        reader.notify_checkpoint_aborted = notes.notify_checkpoint_aborted
        return reader  # type: ignore[no-any-return]


class _Writer(SinkWriter[Any, Any]):
    def __init__(self, path: Path) -> None:
        self._notes = Notes(path)

    def write_batch(self, values: Sequence[Any], timestamps: Sequence[int] | None) -> None: ...

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._notes.notify_checkpoint_complete(checkpoint_id)


class ListeningSink(DiscardingSink):
    """Its writers listen."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, Any]:
        return _Writer(self._path)


def run(env: StreamExecutionEnvironment, folder: Path) -> dict[str, list[str]]:
    """A program in which all listen; what each has heard."""
    source: Any = ListeningSource(lambda n: n, RECORDS)
    source.path = folder / "source"
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    numbers = numbers.map(Mapping(folder / "map")).filter(Filtering(folder / "filter"))
    keyed = numbers.map(NamedAlike(folder / "alike")).key_by(lambda n: n % 7)
    mapped = keyed.map(Mapping(folder / "keyed map")).key_by(lambda n: n % 5)
    mapped.process(Processing(folder / "process")).sink_to(ListeningSink(folder / "sink"))
    env.execute()
    return {path.name: path.read_text().splitlines() for path in folder.iterdir()}


LISTENERS = {"source", "map", "filter", "alike", "keyed map", "process", "sink"}


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_all_hear_of_each_checkpoint_of_a_stream(backend: str, tmp_path: Path) -> None:
    """G2: of the last one, too, which a bounded job takes at its end."""
    env = local_environment(execution__checkpointing__interval="5 ms", state__backend__type=backend)
    heard = run(env, tmp_path)
    assert heard.keys() == LISTENERS
    for listener, lines in heard.items():
        complete = [int(line.split()[1]) for line in lines if line.startswith("complete")]
        assert complete, listener
        assert complete == sorted(set(complete)), listener


def test_all_hear_of_each_epoch_when_the_next_one_begins(tmp_path: Path) -> None:
    """I1: an epoch is a checkpoint."""
    env = local_environment(execution__micro_batch__max_records=100)
    heard = run(env.set_runtime_mode(RuntimeExecutionMode.MICRO_BATCH), tmp_path)
    assert heard.keys() == LISTENERS
    (lines,) = {tuple(lines) for lines in heard.values()}
    assert lines[:3] == ("complete 1", "complete 2", "complete 3")
    assert list(lines) == sorted(set(lines), key=lambda line: int(line.split()[1]))


def test_a_batch_has_no_checkpoints(tmp_path: Path) -> None:
    """A3: as in Flink."""
    env = local_environment(execution__checkpointing__interval="5 ms")
    assert run(env.set_runtime_mode(RuntimeExecutionMode.BATCH), tmp_path) == {}


def test_a_listener_that_raises_is_named(tmp_path: Path) -> None:
    """F2: the error has the operator and the method."""

    class Raising(MapFunction, CheckpointListener):
        def map(self, value: Any) -> Any:
            return value

        def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
            raise ValueError("no")

    env = local_environment(execution__checkpointing__interval="5 ms", restart_strategy__type="none")
    env.from_collection(range(10)).map(Raising()).name("mine").sink_to(DiscardingSink())
    with pytest.raises(JobExecutionError, match=r"notify_checkpoint_complete\(\)"):
        env.execute()
