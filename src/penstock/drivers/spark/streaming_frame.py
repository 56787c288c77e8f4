"""A streaming Spark data frame as a source of micro-batch jobs.

Spark finds the data, and reports how far the frame has been read (`structured_streaming`). In one epoch the source
emits one of Spark's batches. The source's enumerator keeps Spark's position in the job's checkpoints; its readers read
nothing themselves.

The position of Spark's streaming query, as bytes for Penstock's checkpoints.

A query's checkpoint location contains all data that Spark needs to continue: `metadata`, the query's id; `offsets/<n>`,
the end of each batch; `sources/`, the notes of each source; `commits/<n>`, the completed batches. An archive is taken
while batch n is being processed, and contains all of that except the commits. It has the offsets of batch n and of the
one before it, where batch n begins. Of a log of files it has the last `*.compact` and the files that follow it. A
location that is made from the archive lacks the commit of batch n, so Spark repeats batch n, and a job that has
completed it skips it. Only Penstock's checkpoint decides whether a batch is complete. Log entries that Spark has
written since do not affect the archive.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.base.errors import CheckpointError, ConfigurationError, OperationError, WrongTimeError
from penstock.base.typeinfo import TypeInformation
from penstock.drivers.spark.frame_records import build_record_shape
from penstock.runtime.connector import (
    Boundedness,
    InputStatus,
    Source,
    SourceReader,
    SourceReaderContext,
    SplitEnumerator,
    SplitEnumeratorContext,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_COMPACT = ".compact"


@dataclass(frozen=True)
class QueryPosition:
    """The last batch that a checkpoint covers; travels in the enumerators' state.

    `sources`: the operator ids of the sources that the query reads, in its order. `archive`: see the module docstring;
    the first of the sources has the bytes, the others keep it empty.
    """

    batch_id: int
    sources: tuple[str, ...]
    archive: bytes


def archive_position(location: Path, batch_id: int) -> bytes:
    """Archive the data that the query needs to repeat batch `batch_id`. Call it while Spark waits for that batch's end.

    Raises:
        PenstockError: if the query keeps state of its own, which is more than a position.
    """
    if any(path.is_file() for path in location.glob("state/**/*")):
        raise OperationError(
            "a streaming data frame keeps state in Spark (an aggregation, a join, dropDuplicates), which Penstock's "
            "checkpoints do not hold: move that part after from_dataframe()"
        )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(_needed(location, batch_id)):
            name = path.relative_to(location).as_posix()
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def lay_out(archive: bytes, location: Path) -> None:
    """Create a checkpoint location from an archive."""
    with zipfile.ZipFile(io.BytesIO(archive)) as files:
        files.extractall(location)


def _needed(location: Path, batch_id: int) -> Iterator[Path]:
    yield location / "metadata"
    yield location / "offsets" / str(batch_id)
    if batch_id > 0:
        yield location / "offsets" / str(batch_id - 1)
    sources = location / "sources"
    for directory in [sources, *(path for path in sources.rglob("*") if path.is_dir())]:
        if directory.is_dir():
            yield from _of_log(directory)


def _of_log(directory: Path) -> Iterator[Path]:
    """Yield the files of a directory, without files that a compact one replaces and a file system's own files."""
    files = [path for path in directory.iterdir() if path.is_file() and not path.name.startswith(".")]
    numbers = {path: number for path in files if (number := path.name.removesuffix(_COMPACT)).isdecimal()}
    last = max((int(numbers[path]) for path in numbers if path.name.endswith(_COMPACT)), default=-1)
    for path in files:
        is_replaced = path in numbers and (
            int(numbers[path]) < last or (int(numbers[path]) == last and not path.name.endswith(_COMPACT))
        )
        if not is_replaced:
            yield path


#: Parts of a query that keep state if their input is a stream.
_WITH_STATE: Final = {
    "Aggregate",
    "Deduplicate",
    "DeduplicateWithinWatermark",
    "Distinct",
    "GlobalLimit",
    "FlatMapGroupsWithState",
    "FlatMapGroupsInPandasWithState",
    "TransformWithState",
    "TransformWithStateInPySpark",
}


class StreamingFrameSource(Source[Any, Any]):
    """Reads a streaming data frame, in micro-batch execution on Spark.

    Args:
        frame: the data frame.
        type_info: the type of its records, see `build_record_shape`.

    Raises:
        ConfigurationError: if the type does not fit the frame's columns, the frame keeps state in Spark, or its
            session is a Spark Connect session.
    """

    def __init__(self, frame: DataFrame, type_info: TypeInformation | None) -> None:
        if "connect" in type(frame).__module__:
            raise ConfigurationError(
                "a streaming data frame of a Spark Connect session cannot be a source: Spark would run the job's "
                "epochs on its server; use a classic Spark session, or a Penstock source"
            )
        stateful = _stateful_part(frame)
        if stateful is not None:
            raise ConfigurationError(
                f"the streaming data frame keeps state in Spark ({stateful}), which Penstock's checkpoints do not "
                "hold: move that part after from_dataframe()"
            )
        self.shape = build_record_shape(type_info, list(frame.columns))
        self._type_info = type_info
        self._frame: DataFrame | None = frame
        #: The position of the last processed batch, set by the job or on restore.
        self.position: QueryPosition | None = None

    @property
    def frame(self) -> DataFrame:
        """The data frame. It exists only in the program, because it is not pickled."""
        if self._frame is None:
            raise WrongTimeError("a data frame exists only in the program that created it, not in tasks")
        return self._frame

    @property
    def boundedness(self) -> Boundedness:
        """Unbounded, although a job without an interval ends when all available data has been read."""
        return Boundedness.CONTINUOUS_UNBOUNDED

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_frame": None, "position": None}

    def of_one_job(self) -> StreamingFrameSource:
        """Return the same source with a position of its own."""
        return StreamingFrameSource(self.frame, self._type_info)

    def check_tempo(self, mode: str, is_local: bool) -> None:
        """Raise an error if the job does not run in micro-batch execution on Spark."""
        if mode != "MICRO_BATCH":
            raise ConfigurationError(
                f"a streaming data frame needs micro-batch execution, but execution.runtime-mode is {mode}: call "
                "set_runtime_mode(RuntimeExecutionMode.MICRO_BATCH)"
            )
        if is_local:
            raise ConfigurationError(
                "a streaming data frame needs Spark, but execution.target is local: set it to spark"
            )

    def create_enumerator(self, context: SplitEnumeratorContext[Any], restored: Any | None) -> SplitEnumerator[Any]:
        """Create an enumerator that keeps the position, or continues from a restored one."""
        if restored is not None and not isinstance(restored, QueryPosition):
            raise CheckpointError(
                "the state of this source belongs to another kind of source and is not the position of a streaming "
                "data frame: give the source a new uid, and set execution.state-recovery.ignore-unclaimed-state"
            )
        self.position = restored
        return _PositionKeeper(self)

    def create_reader(self, context: SourceReaderContext) -> SourceReader[Any, Any]:
        """Create a reader without data: Spark's batch reaches the task as the task's input."""
        return _NoReader()


class _PositionKeeper(SplitEnumerator[Any]):
    def __init__(self, source: StreamingFrameSource) -> None:
        self._source = source

    def start(self) -> None:
        pass

    def handle_split_request(self, subtask_index: int) -> None:
        pass

    def add_splits_back(self, splits: Sequence[Any], subtask_index: int) -> None:
        pass

    def snapshot_state(self, checkpoint_id: int) -> QueryPosition | None:
        return self._source.position


class _NoReader(SourceReader[Any, Any]):
    def poll_next(self, max_records: int) -> InputStatus:
        return InputStatus.NOTHING_AVAILABLE

    def add_splits(self, splits: Sequence[Any]) -> None:
        pass

    def no_more_splits(self) -> None:
        pass

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        return []


def _stateful_part(frame: DataFrame) -> str | None:
    """Return the name of a part of the frame's query that keeps state; None if no part does."""
    for node in _nodes(frame._jdf.queryExecution().analyzed()):
        if node.isStreaming():
            name = str(node.nodeName())
            children = node.children()
            streams = sum(bool(children.apply(i).isStreaming()) for i in range(children.size()))
            if name in _WITH_STATE or (name == "Join" and streams > 1):
                return name
    return None


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for i in range(children.size()):
        yield from _nodes(children.apply(i))
