"""A job of two chains with a network edge between them, whose operators write down every call of their life cycle.

    source -> a1 -> a2 -> a3  == hash ==>  b1 -> b2 -> b3 -> sink

Beside the calls the log has what goes out on the edge (when it is put there), and each checkpoint or savepoint at the
moment from which it exists.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

from tests.spec.virtual_job import Timed, VirtualJob, environment

from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.datastream import DataStream
from penstock.plan.transformation import Transformation, Upstream
from penstock.runtime.operators.base import StreamOperator
from penstock.runtime.operators.connector import SourceOperator
from penstock.runtime.records import MAX_WATERMARK, Batch, CheckpointBarrier, EndOfData, EndOfPartition, Watermark
from penstock.runtime.task.channels.result_partition import ResultPartition
from penstock.storage.file_store import FileCheckpointStore

UPSTREAM = ("source", "a1", "a2", "a3")
DOWNSTREAM = ("b1", "b2", "b3", "sink")

#: (subtask, where, what), in the order in which it happened
LOG: list[tuple[int, str, str]] = []


class LifeCycle:
    """Mixed into an operator: logs its calls, and raises in the one that `fails_in` names."""

    def __init__(self, *arguments: Any, where: str, fails_in: str = "") -> None:
        super().__init__(*arguments)
        self.where = where
        self.fails_in = fails_in

    def note(self, call: str) -> None:
        context = getattr(self, "context", None)  # one that fails early is closed without having been set up
        LOG.append((0 if context is None else context.subtask_index, self.where, call))
        if call == self.fails_in:
            raise RuntimeError(f"{self.where} fails in {call}")

    def setup(self, context: Any, output: Any) -> None:
        super().setup(context, output)  # type: ignore[misc]
        self.note("setup")

    def initialize_state(self) -> None:
        self.note("initialize_state")
        super().initialize_state()  # type: ignore[misc]

    def recover_finished(self) -> None:
        self.note("recover_finished")

    def open(self) -> None:
        self.note("open")
        super().open()  # type: ignore[misc]

    def snapshot_state(self, checkpoint_id: int) -> Any:
        self.note(f"snapshot {checkpoint_id}")
        return super().snapshot_state(checkpoint_id)  # type: ignore[misc]

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.note(f"notified of {checkpoint_id}")

    def end_input(self, input_index: int = 0) -> None:
        self.note(f"end_input {input_index}" if self.where == "two" else "end_input")

    def quiesce_timers(self) -> None:
        self.note("quiesce_timers")

    def finish(self) -> None:
        self.note("finish")

    def close(self) -> None:
        self.note("close")
        super().close()  # type: ignore[misc]


class LoggingSource(LifeCycle, SourceOperator):
    """A source that logs."""


class Logging(LifeCycle, StreamOperator):
    """Passes everything on, and logs."""

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        self.note("process")
        self.output.collect(batch)

    def process_watermark(self, timestamp: int) -> None:
        if timestamp == MAX_WATERMARK:
            self.note("MAX_WATERMARK")
        super().process_watermark(timestamp)


class LoggingSink(Logging):
    """Logs, and emits nothing."""

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        self.note("process")


def logging_source(env: Any, source: Timed, where: str, fails_in: str = "") -> DataStream:
    """A stream out of a source that logs."""
    strategy = WatermarkStrategy.no_watermarks()
    factory = partial(LoggingSource, source, strategy, where=where, fails_in=fails_in)
    made = Transformation("Source", factory, name=where, uid=where, source=source, is_stateful=True)
    env.add(made)
    return DataStream(env, (Upstream(made),))


def logging_operator(stream: DataStream, where: str, fails_in: str = "", kind: type = Logging) -> DataStream:
    """One more operator that logs."""
    env = stream.get_execution_environment()
    made = Transformation("Logging", partial(kind, where=where, fails_in=fails_in), stream.upstreams, where, where)
    env.add(made)
    return DataStream(env, (Upstream(made),))


def two_chains(source: Timed, parallelism: int = 1, fails: tuple[str, str] = ("", ""), **options: Any) -> VirtualJob:
    """The job of the module's text; `fails` is (where, in which call)."""

    def fails_in(where: str) -> str:
        return fails[1] if where == fails[0] else ""

    env = environment(parallelism, **options)
    stream = logging_source(env, source, "source", fails_in("source"))
    for where in UPSTREAM[1:]:
        stream = logging_operator(stream, where, fails_in(where))
    stream = stream.key_by(lambda record: record)
    for where in DOWNSTREAM[:-1]:
        stream = logging_operator(stream, where, fails_in(where))
    logging_operator(stream, "sink", fails_in("sink"), LoggingSink)
    graph = env.job_graph()
    assert [len(vertex.operators) for vertex in graph.vertices] == [4, 4]
    return VirtualJob(graph, env.get_configuration())


_EVENTS: dict[Any, Any] = {
    Watermark: lambda e: "MAX_WATERMARK" if e.timestamp == MAX_WATERMARK else None,
    CheckpointBarrier: lambda e: f"barrier {e.checkpoint_id}",
    EndOfData: lambda e: f"EndOfData(drain={e.drain})",
    EndOfPartition: lambda e: "EndOfPartition",
}


@contextmanager
def written_down() -> Iterator[None]:
    """Write down what goes out on edges, and what comes into existence in the store, too."""
    broadcast, complete = ResultPartition.broadcast, FileCheckpointStore.complete

    def on_edge(partition: ResultPartition, event: Any, flush: bool = False) -> None:
        text = _EVENTS[type(event)](event) if type(event) in _EVENTS else None
        if text is not None:
            LOG.append((partition.subpartitions[0].channel.producer, "edge", text))
        broadcast(partition, event, flush)

    def in_store(store: Any, metadata: Any, savepoint_path: str | None = None) -> str:
        path = complete(store, metadata, savepoint_path)
        kind = "savepoint" if metadata.is_savepoint else "checkpoint"
        LOG.append((-1, "store", f"{kind} {metadata.checkpoint_id} exists"))
        return path

    LOG.clear()
    with (
        mock.patch.object(ResultPartition, "broadcast", on_edge),
        mock.patch.object(FileCheckpointStore, "complete", in_store),
    ):
        yield


def listing(places: tuple[str, ...], subtask: int = 0, without: tuple[str, ...] = ()) -> list[str]:
    """The log of one subtask at these places, as lines `what: where where where`."""
    mine = [(w, what) for s, w, what in LOG if s in (subtask, -1) and w in places and what not in without]
    groups = itertools.groupby(mine, key=lambda entry: entry[1])
    return [f"{what}: {' '.join(where for where, _ in entries)}" for what, entries in groups]


def calls(call: str) -> list[str]:
    """Where a call was made, in order."""
    return [where for _, where, what in LOG if what == call]


def lines(text: str) -> list[str]:
    """A listing as it is written in a test."""
    return [line.strip() for line in text.strip().splitlines()]
