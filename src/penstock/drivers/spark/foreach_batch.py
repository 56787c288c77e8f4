"""Each epoch of a stream as a Spark data frame: `ForEachBatchSink` (Spark's `foreachBatch`).

An *epoch* is what a job writes between two checkpoints; in MICRO_BATCH an epoch of the job, in BATCH everything. The
writers store the rows as Parquet files. When the checkpoint has completed, the user's function gets a data frame over
these files and the number of the epoch, in the driver, where Spark's session is. So any format that Spark can write is
a sink of a stream.

**How the driver is reached.** In BATCH and MICRO_BATCH, and on the local target, the committer runs in the driver's
process and calls the function. In STREAMING it runs in a worker: it sends a request through the job master, and waits
for the answer, a file beside the rows. The function holds the job back while it runs, so output that is slow slows the
job down.

**Exactly once by epoch.** After the function has returned, the driver writes the number of the epoch into a file
(`_applied`) and removes the rows. A commit that is repeated after a failure finds the number and does nothing. If the
driver dies between the function's last effect and that file, the function gets the same rows and the same number again;
so the output is exact if the function writes everything in one transaction together with the number, or if writing the
same epoch twice has no effect.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import traceback
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.base.configuration import Configuration
from penstock.base.errors import FormatError, OperationError, UnsupportedError
from penstock.base.options import CHECKPOINTING_DIR
from penstock.codecs.arrow_columns import exact_cast_columns
from penstock.codecs.column_data import ColumnData
from penstock.codecs.file_systems import url_to_fs
from penstock.codecs.pickling import kinds_of_rows
from penstock.drivers.directories import directory_of_this_process
from penstock.drivers.spark.frames import arrow_schema, to_record_batch
from penstock.drivers.spark.handle import short_reason
from penstock.drivers.spark.session import session_of_program
from penstock.runtime.connector import Committer, NumberedCommit, Sink, SinkWriter, SinkWriterContext
from penstock.storage.files import absolute_url, write_named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_log = logging.getLogger("penstock.spark")

#: What a program passes to `for_each_batch`: it gets a data frame and the number of the epoch.
BatchFunction = Callable[["DataFrame", int], object]

_FILE_BYTES: Final = 64 << 20
_APPLIED: Final = "_applied"
_DIRECTORY: Final = "for-each-batch"
#: How often a worker looks for an answer: soon at first, and rarely while a function takes long.
_LOOK_S: Final = 0.005
_LOOK_MAX_S: Final = 0.25


def spark_schema(columns: pa.Schema) -> StructType:
    """Return Spark's schema for Arrow columns.

    Raises:
        UnsupportedError: for a type that Spark does not have.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_schema

    try:
        return from_arrow_schema(columns)
    except PySparkException as error:
        raise UnsupportedError(f"Spark has no such column: {error}") from error


class StagedFiles(NamedTuple):
    """The files of one subtask for an epoch; `directory` is that of the job's sink."""

    directory: str
    files: list[str]


class EpochId(NamedTuple):
    """An epoch: its number, and an id that no other epoch has, of whatever job.

    An epoch that is passed again after a failure has the same id.
    """

    number: int
    id: str


_epoch: ContextVar[EpochId | None] = ContextVar("epoch", default=None)


def current_epoch() -> EpochId | None:
    """Return the epoch that is passed to a function of `for_each_batch` in this thread; None outside of one."""
    return _epoch.get()


class _Request(msgspec.Struct, frozen=True):
    """A worker's request to apply an epoch; the answer goes into the file `answer`, empty or with an error."""

    directory: str
    number: int
    files: list[str]
    answer: str


class ForEachBatchSink(Sink[Any]):
    """Calls a function of the program with each epoch; see the module docstring.

    Args:
        function: called in the driver with a data frame and the number of the epoch: 1, 2, and so on, also across
            restarts. It is never pickled.
        frame_schema: the columns.
        owner: the operator that errors name.
        by_place: whether columns are matched by position.
    """

    commits_globally = True
    numbers_commits = True

    def __init__(
        self,
        function: BatchFunction,
        frame_schema: StructType,
        owner: str,
        by_place: bool = False,
    ) -> None:
        self._schema = arrow_schema(frame_schema)
        self._directory: str | None = None
        self._owner = owner
        self._by_place = by_place
        self._token = uuid.uuid4().hex
        self._driver: _Driver | None = _Driver(function, frame_schema, owner)
        _drivers[self._token] = self._driver

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_driver": None}

    def configure(self, configuration: Configuration) -> None:
        """See `Sink`. Rows of epochs are stored below the checkpoint directory, or in a directory of this process."""
        if self._driver is not None:
            self._driver.settings = configuration.to_dict()
        if self._directory is None:
            directory = configuration.read(CHECKPOINTING_DIR) or directory_of_this_process("penstock-epochs-")
            self._directory = f"{absolute_url(directory)}/{_DIRECTORY}"

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, StagedFiles]:
        """See `Sink`."""
        assert self._directory is not None, "a sink is configured before a job begins"
        return _Writer(context, self._schema, self._directory, self._owner, self._by_place)

    def create_committer(self, context: SinkWriterContext) -> Committer[NumberedCommit]:
        """See `Sink`."""
        return _Committer(context, _drivers.get(self._token), self._directory)

    def client_handler(self) -> Callable[[int, bytes], None] | None:
        """See `Sink`. It is asked in the driver."""
        return None if self._driver is None else self._driver.on_request


class _Writer(SinkWriter[Any, StagedFiles]):
    """Writes rows to Parquet files."""

    def __init__(
        self, context: SinkWriterContext, schema: pa.Schema, directory: str, owner: str, by_place: bool
    ) -> None:
        self._schema, self._owner, self._by_place = schema, owner, by_place
        self._directory = f"{directory}/{context.job_id}-{context.operator_id}"
        self._fs, self._path = url_to_fs(self._directory)
        self._fs.makedirs(self._path, exist_ok=True)
        self._stem = f"part-{context.subtask_index:05d}-{uuid.uuid4().hex}"
        self._batches: list[pa.RecordBatch] = []
        self._bytes = self._number = 0
        self._files: list[str] = []

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        if not values:
            return
        if kinds_of_rows(values) is not None:
            self._refuse()
        self._add(to_record_batch(values, self._schema, self._owner))

    def write_columns(self, data: ColumnData, rowtimes: Any) -> None:
        columns = data.columns
        if self._by_place and columns.num_columns == len(self._schema):
            columns = columns.rename_columns(self._schema.names)
        try:
            self._add(exact_cast_columns(columns, self._schema))
        except (pa.ArrowException, KeyError, ValueError) as error:
            names = ", ".join(columns.schema.names)
            raise FormatError(f"{self._owner}: the columns {names} do not fit those of the frame: {error}") from error

    def write_changes(self, data: ColumnData, kinds: bytes, rowtimes: Any) -> None:
        if any(kinds):
            self._refuse()
        self.write_columns(data, rowtimes)

    def _refuse(self) -> None:
        raise UnsupportedError(
            f"{self._owner}: the frame of an epoch has rows, and got a change that is no insert: write the kind of a "
            "change into a column of its own"
        )

    def _add(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= _FILE_BYTES:
            self._write_file()

    def _write_file(self) -> None:
        buffer = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_batches(self._batches, self._schema), buffer)
        self._batches, self._bytes = [], 0
        name = f"{self._stem}-{self._number:05d}.parquet"
        self._number += 1
        write_named(self._fs, self._path, name, buffer.getvalue().to_pybytes())
        self._files.append(name)

    def prepare_commit(self) -> list[StagedFiles]:
        if self._batches:
            self._write_file()
        files, self._files = self._files, []
        return [StagedFiles(self._directory, files)] if files else []

    def close(self) -> None:
        _remove(self._fs, [f"{self._path}/{name}" for name in self._files])


class _Committer(Committer[NumberedCommit]):
    """Applies epochs, in the driver or through it."""

    def __init__(self, context: SinkWriterContext, driver: _Driver | None, directory: str | None) -> None:
        self._context, self._driver, self._directory = context, driver, directory

    def commit(self, committables: Sequence[NumberedCommit]) -> None:
        for number, staged in sorted(committables, key=lambda commit: commit.number):
            directory = staged[0].directory
            files = [name for each in staged for name in each.files]
            if self._driver is not None:
                self._driver.apply(directory, number, files)
            else:
                self._ask(directory, number, files)

    def end_job(self) -> None:
        """See `Committer`: the directory of a job whose output is all applied has no rows any more."""
        if self._directory is not None:
            fs, path = url_to_fs(f"{self._directory}/{self._context.job_id}-{self._context.operator_id}")
            if fs.exists(path):
                fs.rm(path, recursive=True)

    def _ask(self, directory: str, number: int, files: list[str]) -> None:
        """Let the driver apply an epoch, and wait."""
        fs, path = url_to_fs(directory)
        answer = f"_answer-{uuid.uuid4().hex}"
        request = _Request(directory, number, files, answer)
        self._context.emit_to_client(msgspec.msgpack.encode(request))
        pause_s = _LOOK_S
        while (text := _read(fs, f"{path}/{answer}")) is None:
            time.sleep(pause_s)
            pause_s = min(_LOOK_MAX_S, pause_s * 1.5)
        _remove(fs, [f"{path}/{answer}"])
        if text:
            raise OperationError(text.decode())


class _Driver:
    """The program's function, and Spark's session, in the process of the driver."""

    def __init__(self, function: BatchFunction, frame_schema: StructType, owner: str) -> None:
        self._function, self._schema, self._owner = function, frame_schema, owner
        #: the settings of the job, for a session that no job has started
        self.settings: Mapping[str, str] = {}
        self._lock = threading.Lock()
        self._thread: ThreadPoolExecutor | None = None

    def on_request(self, _subtask_index: int, payload: bytes) -> None:
        """Apply an epoch for a worker, in a thread of its own: the caller is in a turn of the job master."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "penstock-for-each-batch")
        self._thread.submit(self._answer, msgspec.msgpack.decode(payload, type=_Request))

    def _answer(self, request: _Request) -> None:
        text = ""
        try:
            self.apply(request.directory, request.number, request.files)
        except Exception as error:  # noqa: BLE001 - the worker raises it
            text = str(error)
            if error.__cause__ is not None:
                _log.warning("%s", "".join(traceback.format_exception(error.__cause__)).rstrip())
        try:
            fs, path = url_to_fs(request.directory)
            write_named(fs, path, request.answer, text.encode())
        except Exception:  # noqa: BLE001 - the thread has no caller
            _log.exception("%s: a worker waits in vain for the answer about epoch %s", self._owner, request.number)

    def apply(self, directory: str, number: int, files: Sequence[str]) -> None:
        """Call the function with an epoch, unless it was applied before.

        Raises:
            OperationError: if the function raises, or files are missing; names the epoch.
        """
        with self._lock:
            fs, path = url_to_fs(directory)
            if number > int(_read(fs, f"{path}/{_APPLIED}") or 0):
                self._call(directory, number, files, fs, path)
                write_named(fs, path, _APPLIED, str(number).encode())
            _remove(fs, [f"{path}/{name}" for name in files])

    def _call(self, directory: str, number: int, files: Sequence[str], fs: Any, path: str) -> None:
        missing = [name for name in files if not fs.exists(f"{path}/{name}")]
        if missing:
            raise OperationError(
                f"{self._owner}: the rows of epoch {number} are missing: {path}/{missing[0]}. Workers and the driver "
                "must see the same directory: set execution.checkpointing.dir to one that all machines can reach"
            )
        frame = (
            session_of_program(self.settings)
            .read.schema(self._schema)
            .parquet(*(f"{directory}/{name}" for name in files))
        )
        epoch = _epoch.set(EpochId(number, sha256("\n".join(sorted(files)).encode()).hexdigest()))
        try:
            self._function(frame, number)
        except Exception as error:
            name = getattr(self._function, "__name__", None)
            what = f"epoch {number} cannot be written" if name is None else f"{name}() failed for epoch {number}"
            is_of_java = type(error).__name__.startswith("Py4J")
            reason = short_reason(error) if is_of_java else f"{type(error).__name__}: {error}"
            raise OperationError(f"{self._owner}: {what}: {reason}") from error
        finally:
            _epoch.reset(epoch)


#: the functions of this process's sinks, for committers that run in it
_drivers: weakref.WeakValueDictionary[str, _Driver] = weakref.WeakValueDictionary()


def _read(fs: Any, path: str) -> bytes | None:
    """Return the content of a file; None if there is none."""
    try:
        content: bytes = fs.cat_file(path)
    except FileNotFoundError:
        return None
    return content


def _remove(fs: Any, paths: Sequence[str]) -> None:
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            fs.rm_file(path)
