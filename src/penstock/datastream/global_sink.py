"""A sink that commits in one place, as two operators: its writers and its committer."""

from __future__ import annotations

from functools import partial
from typing import Any, Self

from penstock.core.connector import Sink
from penstock.core.operators.sink.global_commit import CommittableWriterOperator, GlobalCommit
from penstock.core.operators.sink.sink import SinkOperator
from penstock.core.task.channels.partitioners import GlobalPartitioner
from penstock.datastream.data_stream_sink import DataStreamSink
from penstock.plan.transformation import Transformation, Upstream

_COMMITTER = "{}: Committer"


class GlobalSink(DataStreamSink):
    """The end of a stream. Its settings apply to the writers; its name and uid also apply to the committer."""

    def __init__(self, writer: Transformation, committer: Transformation) -> None:
        super().__init__(writer)
        self._committer = committer
        self.steps = (writer, committer)

    def name(self, name: str) -> Self:
        """Set the name of the writers in plans, errors and metrics; the committer is called `<name>: Committer`."""
        self._committer.name = _COMMITTER.format(name)
        return super().name(name)

    def uid(self, uid: str) -> Self:
        """Set the id of the writers' state in savepoints; the committer's is `<uid>: Committer`."""
        self._committer.uid = _COMMITTER.format(uid)
        return super().uid(uid)


def global_sink(upstreams: tuple[Upstream, ...], sink: Sink[Any]) -> GlobalSink:
    """Return both transformations, ready to be added to the program."""
    writer = Transformation("Sink", partial(CommittableWriterOperator, sink), upstreams, is_stateful=True, sink=sink)
    committer = Transformation(
        _COMMITTER.format("Sink"),
        partial(SinkOperator, GlobalCommit(sink)),
        (Upstream(writer, GlobalPartitioner()),),
        parallelism=1,
        is_stateful=True,
        sink=sink,
    )
    return GlobalSink(writer, committer)
