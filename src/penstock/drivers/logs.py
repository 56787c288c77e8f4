"""Logs of jobs and their processes: options, formats, files of limited size, and the log of a job in the driver.

`LogSettings` are the options of logs, as sent to workers.

**Formats.** Log lines are text or JSON objects, without the secrets that this process knows.

**Files.** `OutputFile` and `Tee` write the printed output of functions to its usual stream, and to a file.
`ProcessLogs` are the log and output files of a process, limited in size, and readable by name. A program's process has
an output file if it was started with one.

`kept_logs` writes the log of a worker: a file of its log records, including its tasks' states, and a file of what
functions print. Warnings still go to the process's own stderr, which Spark shows, except for task failures, which are
in the driver's log. The previous logging configuration is restored when the worker has ended, because Spark reuses the
process.

`ClientListener` is the client's listener to a job: it logs lines, and passes on the bytes that sinks send to the
client.

`DriverLog` is the log of a job in the driver: the lines of `penstock` about this job, or about no job in particular. A
line is about the job in whose thread it is logged. With `penstock.logs.dir` it goes to files there. Otherwise the last
lines are kept in memory, so a job creates no files that were not requested.

`check_keys` warns about configuration keys that belong to no option.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from io import TextIOBase
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TextIO, cast

from penstock.base import options
from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError
from penstock.base.secrets import hide, known_secrets, values_to_hide
from penstock.base.unknown_options import unknown_options
from penstock.drivers.directories import WorkerDirectories, WorkerDirectory
from penstock.drivers.inspection import FILE_BYTES_MAX, Answer, FileText, LogFile, LogFiles, Refused
from penstock.runtime.graph import ExecutionState, JobGraph
from penstock.runtime.ports import MasterGateway
from penstock.runtime.protocol import ExecutionId, Failure, TaskStateChanged, ToMaster
from penstock.runtime.task.stream_task import StreamTask


@dataclass(frozen=True)
class LogSettings:
    """The log settings of the processes of one job.

    Attributes:
        job_id: the job.
        directory: where files remain after the job; None for files that are deleted at the end of their process.
        level: the minimum level of the lines that are kept.
        is_json: whether each line is a JSON object.
        file_bytes_max: the maximum size of a file.
        files_max: the number of newest files that a process keeps.
        output_bytes_max: the maximum size of the printed output that is kept.
        secrets: hidden in every line of each process that receives the settings.
    """

    job_id: str
    directory: str | None = None
    level: str = "INFO"
    is_json: bool = False
    file_bytes_max: int = 10 << 20
    files_max: int = 5
    output_bytes_max: int = 10 << 20
    secrets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        known_secrets.add(self.secrets)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        known_secrets.add(self.secrets)

    @classmethod
    def of(cls, configuration: Configuration, job_id: str) -> LogSettings:
        """Read the options."""
        read = configuration.read
        return cls(
            job_id,
            read(options.LOGS_DIR),
            read(options.LOGS_LEVEL),
            read(options.LOGS_FORMAT) == "json",
            read(options.LOGS_FILE_BYTES_MAX),
            read(options.LOGS_FILES_MAX),
            read(options.LOGS_OUTPUT_BYTES_MAX),
            values_to_hide(configuration.to_dict()),
        )


class HidingForm(logging.Formatter):
    """A formatter that hides the secrets that this process knows."""

    def format(self, record: logging.LogRecord) -> str:
        return hide(super().format(record))


class TextForm(HidingForm):
    """The format of Flink's logs."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-5s %(name)s [%(threadName)s] - %(message)s")


class JsonForm(logging.Formatter):
    """One JSON object per line: `time` (UTC), `level`, `logger`, `thread`, `job`, `process`, `message`, `exception`."""

    def __init__(self, settings: LogSettings, process: str) -> None:
        super().__init__()
        self._settings = settings
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "thread": record.threadName,
            "job": self._settings.job_id,
            "process": self._process,
            "message": hide(record.getMessage()),
        }
        if record.exc_info:
            line["exception"] = hide(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False)


def build_formatter(settings: LogSettings, process: str) -> logging.Formatter:
    """Return the formatter for the settings."""
    return JsonForm(settings, process) if settings.is_json else TextForm()


class OutputFile:
    """Printed output in two files: a full file replaces the older one, so the newest output is always kept."""

    def __init__(self, path: Path, bytes_max: int) -> None:
        self._path = path
        self._older = path.with_name(path.name + ".1")
        self._half = max(1, bytes_max // 2)
        self._lock = threading.Lock()
        self._file = path.open("ab")
        self._size = path.stat().st_size

    def write(self, text: str) -> None:
        """Append text. Thread-safe."""
        data = text.encode(errors="backslashreplace")[-self._half :]
        with self._lock:
            if self._file.closed:
                return
            if self._size + len(data) > self._half:
                self._file.close()
                self._path.replace(self._older)
                self._file, self._size = self._path.open("ab"), 0
            self._file.write(data)
            self._size += len(data)

    def read(self) -> bytes:
        """Return all output that is kept."""
        with self._lock:
            if not self._file.closed:
                self._file.flush()
            older = self._older.read_bytes() if self._older.exists() else b""
            return older + self._path.read_bytes()

    def flush(self) -> None:
        """Flush the file to disk."""
        with self._lock:
            if not self._file.closed:
                self._file.flush()

    def close(self) -> None:
        """Close the file; later text is ignored."""
        with self._lock:
            self._file.close()


class Tee(TextIOBase):
    """A stream that also writes its text to a file. Other attributes, such as the descriptor, come from the stream."""

    def __init__(self, stream: TextIO, file: OutputFile) -> None:
        self._stream = stream
        self._copy = file

    def write(self, text: str) -> int:
        written = self._stream.write(text)
        try:
            self._copy.write(text)
        except OSError:  # a full disk must not make a user's print fail
            self._copy.close()
        return written

    def flush(self) -> None:
        self._stream.flush()
        try:
            self._copy.flush()
        except OSError:
            self._copy.close()

    def writable(self) -> bool:
        return True

    def __getattribute__(self, name: str) -> Any:
        if name in ("buffer", "encoding", "errors", "fileno", "isatty", "mode", "name", "newlines", "reconfigure"):
            return getattr(object.__getattribute__(self, "_stream"), name)
        return super().__getattribute__(name)


@contextmanager
def printed_into(file: OutputFile) -> Iterator[None]:
    """Copy this process's stdout and stderr to the file in this context."""
    out, err = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = cast("TextIO", Tee(out, file)), cast("TextIO", Tee(err, file))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err


#: The name prefix of directories that are deleted at the end of their process.
LOGS_PREFIX: Final = "penstock-logs-"


class ProcessLogs:
    """The log files of one process.

    `<penstock.logs.dir>/<job>/<process>.log`, with `.1` and so on for older files, and `.out` for printed output.
    Without the option, they are in a temporary directory until the process ends.

    Args:
        settings: the options of the logs.
        process: the prefix of the file names.
    """

    def __init__(self, settings: LogSettings, process: str) -> None:
        self._own: WorkerDirectory | None = None
        if settings.directory is None:
            self._own = WorkerDirectories(None, settings.job_id, LOGS_PREFIX).make()
            self.directory = self._own.path
        else:
            self.directory = Path(settings.directory) / settings.job_id
            self.directory.mkdir(parents=True, exist_ok=True)
        self._main = f"{process}.log"
        self.handler: logging.Handler = RotatingFileHandler(
            self.directory / self._main,
            maxBytes=settings.file_bytes_max,
            backupCount=settings.files_max - 1,
            encoding="utf-8",
            errors="backslashreplace",
        )
        self.handler.setFormatter(build_formatter(settings, process))
        self.handler.setLevel(settings.level)
        self.printed = OutputFile(self.directory / f"{process}.out", settings.output_bytes_max)

    def _files(self) -> list[Path]:
        paths = [path for path in self.directory.iterdir() if path.name.startswith(self._main)]
        return sorted(paths, key=lambda path: (len(path.name), path.name))

    def list(self) -> Answer:
        """List the log's files, newest first."""
        files = []
        for path in self._files():
            about = path.stat()
            files.append(LogFile(path.name, about.st_size, about.st_mtime_ns // 1_000_000))
        return LogFiles(tuple(files))

    def read(self, name: str) -> Answer:
        """Return the end of a log file; of the newest one if the name is empty."""
        for path in self._files():
            if path.name == (name or self._main):
                return self._take_tail(path.read_bytes())
        return Refused(f"there is no log file {name!r}", is_unknown=True)

    def output(self) -> Answer:
        """Return the end of the printed output."""
        return self._take_tail(self.printed.read())

    def _take_tail(self, data: bytes) -> FileText:
        text = hide(data.decode(errors="replace")).encode()
        return FileText(text[-FILE_BYTES_MAX:], max(0, len(text) - FILE_BYTES_MAX))

    def close(self) -> None:
        """Close the files, and remove temporary ones."""
        self.handler.close()
        self.printed.close()
        if self._own is not None:
            self._own.remove()


TASKS_LOGGER: Final = "penstock.tasks"
_log = logging.getLogger("penstock.logs")
_tasks_log = logging.getLogger(TASKS_LOGGER)


@contextmanager
def kept_logs(settings: LogSettings | None, worker_id: str) -> Iterator[ProcessLogs | None]:
    """Write this worker's log records and prints to files within the `with` block; yield None if that is impossible."""
    logs = None if settings is None else _begin(settings, worker_id)
    if settings is None or logs is None:
        yield None
        return
    root = logging.getLogger()
    handlers: list[logging.Handler] = [logs.handler]
    if not root.handlers:
        handlers.append(_to_stderr())
    level = root.level
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(min(level or logging.WARNING, logging.getLevelName(settings.level)))
    try:
        with printed_into(logs.printed):
            yield logs
    finally:
        root.setLevel(level)
        for handler in handlers:
            root.removeHandler(handler)
        logs.close()


def _to_stderr() -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(HidingForm())
    handler.addFilter(lambda record: record.name != TASKS_LOGGER)
    return handler


def _begin(settings: LogSettings, worker_id: str) -> ProcessLogs | None:
    try:
        return ProcessLogs(settings, worker_id)
    except OSError as error:
        _log.warning("worker %s keeps no log files: %s", worker_id, error)
        return None


class LoggedStates:
    """A gateway to the job master that logs a line for each state of a task.

    Args:
        master: the gateway that receives the messages.
    """

    def __init__(self, master: MasterGateway) -> None:
        self._master = master
        #: the worker's tasks, which have names
        self.tasks: Callable[[], Iterable[StreamTask]] = tuple

    def send(self, message: ToMaster) -> None:
        """Forward a message, and log a task's state."""
        if isinstance(message, TaskStateChanged):
            self._note(message)
        self._master.send(message)

    def _note(self, message: TaskStateChanged) -> None:
        name, attempt = self._name(message.execution), message.execution.attempt
        if message.state == ExecutionState.FAILED.value and message.failure is not None:
            _tasks_log.warning("task %s, attempt %d: FAILED: %s", name, attempt, _in_words(message.failure))
        else:
            _tasks_log.info("task %s, attempt %d: %s", name, attempt, message.state)

    def _name(self, execution: ExecutionId) -> str:
        task = next((candidate for candidate in self.tasks() if candidate.execution == execution), None)
        if task is None:
            return f"of vertex {execution.vertex} ({execution.subtask + 1})"
        return f"'{task.deployment.task_name} ({execution.subtask + 1}/{task.deployment.parallelism})'"


def _in_words(failure: Failure) -> str:
    of = None if failure.operator_name is None else f"operator '{failure.operator_name}'"
    record = None if failure.record is None else f"record: {failure.record}"
    where = ", ".join(filter(None, (of, record)))
    line = f"{failure.reason} ({where})" if where else failure.reason
    return f"{line}\n{failure.traceback.rstrip()}" if failure.traceback else line


#: The environment variable with the path of that file.
OUTPUT_VARIABLE: Final = "PENSTOCK_OUTPUT_FILE"


def end_of_file(path: Path) -> Answer:
    """Return the content of a file; of a long file, the end."""
    try:
        with path.open("rb") as file:
            left_out = max(0, file.seek(0, 2) - FILE_BYTES_MAX)
            file.seek(left_out)
            return FileText(file.read(FILE_BYTES_MAX), left_out)
    except OSError as error:
        return Refused(f"{path} cannot be read: {error}", is_unknown=True)


_job_log = logging.getLogger("penstock.job")

_TRACEBACK: Final = "\nTraceback (most recent call last):\n"
#: A line of a traceback with a file and line number, and an unindented line: the error.
_FRAME: Final = re.compile(r'^  File "(.+)", line (\d+).*', re.MULTILINE)
_UNINDENTED: Final = re.compile(r"^\S", re.MULTILINE)

#: The prefix of the names of handlers that store a log.
KEEPS = "penstock-keeps-"


class ClientListener:
    """Logs the job's few important events, and passes sinks' bytes to their handlers."""

    def __init__(self, job_graph: JobGraph) -> None:
        self._name = job_graph.name
        self._handlers = job_graph.client_handlers
        #: the traceback of the failure that the job is recovering from
        self._traceback = ""
        log_to_stderr_by_default()

    def on_job_status(self, status: str, reason: str | None) -> None:
        """Log failures and restarts as warnings, and the rest as information.

        The traceback of a failure is logged at the restart; a job that does not restart raises it.
        """
        level = logging.WARNING if status in ("FAILING", "RESTARTING") else logging.INFO
        if status == "CREATED":
            return
        text, trace = (reason or "", "") if status == "FAILED" else summarize_failure(reason or "")
        if status == "FAILING":
            self._traceback, trace = trace, ""
        elif status == "RESTARTING":
            self._traceback, trace = "", trace or self._traceback
        because = "" if not text or status == "FAILED" else f": {text}"  # a FAILED job raises the reason
        _job_log.log(level, "%s: %s%s%s", self._name, status.lower(), because, trace and f"\n{trace}")

    def on_client_output(self, operator_id: str, subtask_index: int, payload: bytes) -> None:
        """Pass a sink's bytes to its handler."""
        handler = self._handlers.get(operator_id)
        if handler is not None:
            handler(subtask_index, payload)

    def on_log(self, line: str) -> None:
        """Log a line for the user."""
        _job_log.info("%s: %s", self._name, line)


def summarize_failure(reason: str) -> tuple[str, str]:
    """Return an error in one line, with operator, record and the last line of code; and its traceback, or ""."""
    context, begin, frames = reason.partition(_TRACEBACK)
    if not begin:
        return reason, ""
    code, error = [], frames
    for frame in _FRAME.finditer(frames):
        code, error = [f"{Path(frame[1]).name}:{frame[2]}"], frames[frame.end() :]
    match = _UNINDENTED.search(error)
    error = "" if match is None else error[match.start() :].partition("\n")[0]
    return f"{error} ({', '.join([*context.splitlines(), *code])})", begin.lstrip() + frames


def log_to_stderr_by_default() -> None:
    """Log to stderr what jobs do if the program has not set up logging."""
    hide_in_uncaught_errors()
    logger = logging.getLogger("penstock")
    # Handlers that store lines for later display do not show them to the user.
    handlers = [handler for handler in logger.handlers if not (handler.name or "").startswith(KEEPS)]
    if handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(HidingForm("%(asctime)s penstock %(message)s", "%H:%M:%S"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


def hide_in_uncaught_errors() -> None:
    """Hide secrets in the traceback of an error that ends the program, unless the program has set its own hook."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _print_hidden


def _print_hidden(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    text = "".join(traceback.format_exception(kind, error, trace))
    hidden = hide(text)
    if hidden == text or sys.stderr is None:
        sys.__excepthook__(kind, error, trace)
    else:
        sys.stderr.write(hidden)


DRIVER: Final = "driver"
#: The maximum number of characters kept in memory.
KEPT_CHARS_MAX: Final = 1 << 20
#: The maximum length (characters) of a line in memory.
LINE_CHARS_MAX: Final = 1 << 16

_job_of_thread: ContextVar[str | None] = ContextVar("penstock_job", default=None)


def set_thread_job(job_id: str) -> None:
    """Assign the later log lines of this thread to a job."""
    _job_of_thread.set(job_id)


class LastLines(logging.Handler):
    """Keeps the last lines."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[str] = deque()
        self._chars = 0
        self.written_ms = int(time.time() * 1000)
        self._own = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record)[:LINE_CHARS_MAX] + "\n"
        with self._own:
            self._lines.append(line)
            self._chars += len(line)
            while self._chars > KEPT_CHARS_MAX:
                self._chars -= len(self._lines.popleft())
            self.written_ms = int(record.created * 1000)

    def text(self) -> str:
        """Return the kept lines."""
        with self._own:
            return "".join(self._lines)

    def list(self) -> Answer:
        """List the only log file."""
        return LogFiles((LogFile(f"{DRIVER}.log", len(self.text().encode()), self.written_ms),))

    def read(self, name: str) -> Answer:
        """Return the log."""
        if name not in ("", f"{DRIVER}.log"):
            return Refused(f"there is no log file {name!r}", is_unknown=True)
        return FileText(self.text().encode())


class DriverLog:
    """Listens to the logger `penstock` from construction to `close`; its lines can still be read after that."""

    def __init__(self, settings: LogSettings) -> None:
        self._job_id = settings.job_id
        self._kept: LastLines | ProcessLogs
        self._handler: logging.Handler
        try:
            if settings.directory is None:
                self._kept = self._handler = LastLines()
                self._handler.setFormatter(build_formatter(settings, DRIVER))
                self._handler.setLevel(settings.level)
            else:
                self._kept = ProcessLogs(settings, DRIVER)
                self._handler = self._kept.handler
        except OSError as error:
            _log.warning("the driver's log is kept in memory: %s", error)
            self._kept = self._handler = LastLines()
            self._handler.setFormatter(build_formatter(settings, DRIVER))
        self._handler.set_name(f"{KEEPS}{settings.job_id}")
        self._handler.addFilter(self._is_of_job)
        logging.getLogger("penstock").addHandler(self._handler)

    def _is_of_job(self, record: logging.LogRecord) -> bool:
        return _job_of_thread.get() in (None, self._job_id)

    def list(self) -> Answer:
        """List the log's files, newest first."""
        return self._kept.list()

    def read(self, name: str) -> Answer:
        """Return the end of a log file."""
        return self._kept.read(name)

    def output(self) -> Answer:
        """Return the program's output, if the process that started the program redirected it to a file."""
        path = os.environ.get(OUTPUT_VARIABLE)
        if path is None:
            return Refused("what the driver's program prints is not kept: it is where the program was started")
        return end_of_file(Path(path))

    def close(self) -> None:
        """Stop listening."""
        logging.getLogger("penstock").removeHandler(self._handler)
        if isinstance(self._kept, ProcessLogs):
            self._kept.close()


def check_keys(keys: Iterable[str], is_strict: bool, reported: set[str]) -> None:
    """Warn about each unknown key that is not in `reported`, and add it there.

    Raises:
        ConfigurationError: if `is_strict` and there are such keys.
    """
    unknown = unknown_options(set(keys) - reported)
    if unknown and is_strict:
        raise ConfigurationError("; ".join(unknown.values()))
    if unknown:
        log_to_stderr_by_default()
    for sentence in unknown.values():
        _job_log.warning("%s", sentence)
    reported.update(unknown)
