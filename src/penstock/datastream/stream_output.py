"""Outputs of a stream: sinks, the program itself, data frames (A2, I2).

A sink that commits in one place (`GlobalSink`) consists of two operators: its writers and its committer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Self

from penstock.base.errors import WrongTypeError, WrongValueError
from penstock.connectors.collect import CollectSink, PrintSink
from penstock.datastream.closeable_iterator import CloseableIterator
from penstock.datastream.data_frames import build_batch_sink, build_data_frame
from penstock.datastream.environment import StreamT
from penstock.datastream.operator_settings import DataStreamSink
from penstock.datastream.stream import Stream
from penstock.plan.transformation import Transformation, Upstream
from penstock.runtime.connector import Sink
from penstock.runtime.operators.connector import CommittableWriterOperator, GlobalCommit, SinkOperator
from penstock.runtime.task.channels.result_partition import GlobalPartitioner

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


class StreamOutput(Stream[StreamT]):
    """A stream whose records can be written, collected, or read as a data frame."""

    def sink_to(self, sink: Sink[Any]) -> DataStreamSink:
        """Write the records to a sink.

        Returns:
            The end of the stream, whose methods set the sink's name, uid and parallelism.

        Examples:
            >>> from penstock.common import Encoder
            >>> from penstock.datastream.connectors import FileSink
            >>> sink = FileSink.for_row_format("words", Encoder.simple_string_encoder()).build()
            >>> _ = words.sink_to(sink).name("words")
        """
        sink = sink.for_type(self.declared_type)
        if sink.commits_globally:
            both = global_sink(self._upstreams, sink)
            for step in both.steps:
                self._environment.add(step)
            return both
        return DataStreamSink(self._sink_transformation("Sink", sink))

    def add_sink(self, sink_func: Sink[Any]) -> DataStreamSink:
        """Write the records to a sink; the older name of `sink_to`.

        Raises:
            TypeError: if it is not a `Sink`.
        """
        if not isinstance(sink_func, Sink):
            raise WrongTypeError(
                f"{sink_func!r} is not a Sink: implement penstock.runtime.connector.Sink, or call process() with a "
                "function"
            )
        return self.sink_to(sink_func)

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Print the records to the program's standard output, with the subtask's number if there are several subtasks.

        Records of a declared type are formatted as in Flink: `+I[1, a]` for a ROW, `(1,a)` for a TUPLE. Others are
        formatted with `str`.

        Args:
            sink_identifier: a text that precedes each record, as in `words> tea`; None for none.

        Examples:
            >>> _ = words.print()
            >>> result = env.execute()
            tea
            milk
        """
        return DataStreamSink(self._sink_transformation("Print", PrintSink(sink_identifier, self.declared_type)))

    def _sink_transformation(self, kind: str, sink: Sink[Any]) -> Transformation:
        transformation = Transformation(kind, partial(SinkOperator, sink), self._upstreams, is_stateful=True, sink=sink)
        self._environment.add(transformation)
        return transformation

    def collect(self, limit: int | None = None) -> list[Any]:
        """Run the program and return the records of this stream: all of them, or at most `limit`.

        Without a limit this waits for the end of the job, so it never returns if the stream is unbounded.
        `execute_and_collect` describes the end of the job at the limit.

        Args:
            limit: the maximum number of records, at least 1; None for all.

        Raises:
            ValueError: if the limit is less than 1.
            JobExecutionError: if the job fails.

        Examples:
            >>> words.collect(limit=1)
            ['tea']
        """
        if limit is not None:
            return list(self.execute_and_collect(limit=limit))
        with self._results(None, False)[0] as results:
            return list(results)

    def to_dataframe(self, schema: Any = None) -> Any:
        """Return the records as a Spark data frame, for further processing in Spark; for batch execution (I2).

        Like any data frame, it runs only when Spark needs a result, and again for each result. Cache a frame that is
        used several times. `execute` skips operators that lead only to data frames.

        Args:
            schema: the columns, as DDL such as `"name STRING, count BIGINT"` or a `StructType`. Records are rows,
                tuples or dicts with one field for each column, or single values for one column. None if the
                `output_type` of the previous operator defines the columns, or if the records come from a data frame.

        Raises:
            ConfigurationError: if the columns are unknown, or the program is not for batch execution on Spark.
        """
        above = self._environment.build_program_part(self._upstreams)
        frame = build_data_frame(self._upstreams, above, self._environment.get_configuration(), schema)
        self._environment.leave_out(above)
        return frame

    def for_each_batch(self, function: Callable[[Any, int], Any], schema: Any = None) -> DataStreamSink:
        """Pass the records of each epoch to a function as a Spark data frame: Spark's `foreachBatch`, in any mode (I2).

        An epoch is what the stream has between two checkpoints, an epoch of a micro-batch job, or a whole batch. The
        function runs in the program, and writes the frame to wherever Spark can write. It may get the same rows with
        the same epoch number again after a failure of the program; epochs that it has written are not repeated.

        Args:
            function: takes the data frame and the number of the epoch: 1, 2, and so on, also across restarts.
            schema: the columns, as in `to_dataframe`.

        Raises:
            ConfigurationError: if the columns are unknown.

        Examples:
            >>> written = []
            >>> def write(frame, epoch):
            ...     written.append((epoch, frame.count()))
            >>> _ = words.for_each_batch(write, "word STRING")
        """
        sink = build_batch_sink(self._upstreams, function, schema, self._environment.get_configuration())
        return self.sink_to(sink)

    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> CloseableIterator | list[Any]:
        """Run the program and return the records: an iterator or, with `limit`, a list of at most this many records.

        One subtask collects, so the records of each subtask of this stream arrive in the order of their emission. With
        checkpointing, each record arrives exactly once, when the checkpoint that covers it has completed. With a limit,
        records arrive at once, and may arrive again after a failure.

        At the limit, the job is cancelled, unless it is bounded and the program has other sinks: then it runs to its
        end, so that they get all records. A warning names the sinks that are cancelled with an unbounded job.

        Args:
            job_execution_name: the name of the job; None for the option `pipeline.name`.
            limit: the maximum number of records, at least 1; None for an iterator over all.

        Raises:
            ValueError: if the limit is less than 1.
            JobExecutionError: if the job fails.

        Examples:
            >>> with words.execute_and_collect("words") as results:
            ...     print(next(results))
            tea
        """
        if limit is not None and limit < 1:
            raise WrongValueError(f"the limit must be at least 1, not {limit}")
        results, is_bounded = self._results(job_execution_name, limit is not None)
        return results if limit is None else results.take(limit, is_bounded)

    def _results(self, job_name: str | None, has_limit: bool) -> tuple[CloseableIterator, bool]:
        """Run the program; return its results, and whether it is bounded."""
        other_sinks, is_bounded = self._environment.ends_so_far()
        results = CloseableIterator(other_sinks)
        immediate = has_limit or not self._environment.is_checkpointed
        collect = self._sink_transformation("Collect", CollectSink(immediate))
        # One subtask collects all records: several would split the records of one producer and deliver them in any
        # order.
        collect.inputs = tuple(replace(upstream, partitioner=None) for upstream in self._upstreams)
        collect.parallelism = 1
        collect.client_handler = results.on_frame
        results.begin(self._environment.execute_async(job_name))
        return results, is_bounded
