"""Sessions, operations and pages of results: what Flink's SQL gateway does with calls, without sockets or SQL.

**Sessions.** Each session has an `Engine`, which runs its statements one after another in a thread of the session. A
call about a session counts as its use; `Sessions.end_idle` ends those that were idle for too long. The end of a session
ends its operations and with them its queries; the jobs of its INSERTs go on.

**Operations.** An operation is a statement that was submitted. Its status is, in order, PENDING, RUNNING, and FINISHED,
ERROR or CANCELED. A query is FINISHED as soon as its job has started and its rows can be asked for. From then on only
`close` ends the job. A cancelled statement that is still at work ends in the background: its query is closed, and the
job of an INSERT goes on, as in Flink.

**Pages.** `Pages.fetch` follows Flink's rules for tokens. The expected token gives the next rows, at most 5,000, or
none while the job has none. The token before it gives the last rows again. After the end, the last rows are gone. The
first page of a query is neither its end nor its failure, so clients know its columns first. A thread of the operation
reads the rows of a query, and waits while 5,000 of them are unread.

`GatewayError` is a failed call: a chain of causes, each with a class of Flink's or of Python's.
"""

from __future__ import annotations

import logging
import re
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Protocol

from penstock.base.errors import PenstockError, WrongValueError, shorten
from penstock.base.secrets import hide, remember

_log = logging.getLogger("penstock.gateway")
_UUID: Final = re.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")

#: The maximum number of rows of a page, and of rows that are read ahead of the client.
PAGE_ROWS_MAX: Final = 5_000
#: How long (s) a call waits for rows, so that a client that asks again at once does not keep the server busy.
PATIENCE_SECONDS: Final = 0.1
#: The number of characters of a statement in an error.
STATEMENT_CHARS_MAX: Final = 500

#: The stack of a cause: the traceback is in the log of the gateway, if anywhere.
_STACK: Final = "\tat penstock.gateway(Unknown Source)"
_API: Final = "org.apache.flink.table.gateway.api.utils.SqlGatewayException"
_SERVICE: Final = "org.apache.flink.table.gateway.service.utils.SqlExecutionException"


class RowFormat(Enum):
    """The form of the values in a page."""

    JSON = "JSON"
    PLAIN_TEXT = "PLAIN_TEXT"


class Status(Enum):
    """The status of an operation."""

    INITIALIZED = "INITIALIZED"
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    CANCELED = "CANCELED"
    CLOSED = "CLOSED"
    ERROR = "ERROR"

    @property
    def is_terminal(self) -> bool:
        """Whether the statement does not run any longer."""
        return self in (Status.FINISHED, Status.CANCELED, Status.CLOSED, Status.ERROR)


class GatewayError(PenstockError, RuntimeError):
    """A call that fails, as a chain of causes: the class and the message of each, the outermost first."""

    def __init__(self, *causes: tuple[str, str]) -> None:
        super().__init__(*causes)
        self.causes = causes

    def __str__(self) -> str:
        # Clients show the last cause up to the first line of its stack.
        return "\nCaused by: ".join(f"{name}: {message}\n{_STACK}" for name, message in self.causes)

    def within(self, *outer: tuple[str, str]) -> GatewayError:
        """Return the error with these causes around it."""
        return GatewayError(*outer, *self.causes)


def api_error(*messages: str) -> GatewayError:
    """Return an error of the gateway itself, with a cause for each message, the outermost first."""
    return GatewayError(*((_API, message) for message in messages))


def execution_error(message: str) -> GatewayError:
    """Return an error of a statement that the gateway cannot run."""
    return GatewayError((_SERVICE, message))


@dataclass(frozen=True)
class Result:
    """The result of a statement.

    Attributes:
        columns: the columns, in JSON.
        render: returns the JSON of a row's values in a format; raises `WrongValueError` if the format cannot have them.
        rows: the rows, each with its kind. They may arrive slowly if `is_query`.
        is_query: whether the statement is a query.
        has_content: whether there are rows to show, rather than OK.
        job_id: the id of the job that the statement has started.
        close: ends the query.
    """

    columns: str
    render: Callable[[RowFormat, Sequence[Any]], str]
    rows: Iterator[tuple[str, Sequence[Any]]]
    is_query: bool = False
    has_content: bool = True
    job_id: str | None = None
    close: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class TableRefresh:
    """A request to refresh a materialized table.

    Attributes:
        identifier: the name of the table.
        is_periodic: whether a scheduler asks, for the partition of `schedule_time` (yyyy-MM-dd HH:mm:ss).
        partition: the partition that the client asks for; all of the table if it is empty.
        dynamic_options: options of the table for this refresh.
        options: options of its job.
    """

    identifier: str
    is_periodic: bool
    schedule_time: str | None
    partition: Mapping[str, str]
    dynamic_options: Mapping[str, str]
    options: Mapping[str, str]


class Workflows(Protocol):
    """The embedded scheduler, as the gateway sees it. Errors are those of Penstock."""

    def create(self, identifier: str, cron: str, options: Mapping[str, str]) -> tuple[str, str]:
        """Let a materialized table be refreshed at times, and return the name and group of the workflow."""

    def suspend(self, name: str) -> None:
        """Let a workflow run no more."""

    def resume(self, name: str) -> None:
        """Let a workflow run again."""

    def delete(self, name: str) -> None:
        """Remove a workflow, if there is one."""


class Engine(Protocol):
    """Runs the statements of one session. All methods except `options` are called by the thread of the session."""

    def run(self, statement: str, options: Mapping[str, str], is_cancelled: Callable[[], bool]) -> Result:
        """Run a statement with further options. While it waits for a job, it watches `is_cancelled`."""

    def refresh(self, request: TableRefresh) -> Result:
        """Start the refresh of a materialized table."""

    def configure(self, statement: str) -> None:
        """Run a statement that changes the session; raise `GatewayError` for others."""

    def options(self) -> Mapping[str, str]:
        """Return the options of the session, without secrets."""

    def complete(self, statement: str, position: int) -> Sequence[str]:
        """Return the words that may stand at a position of a statement."""

    def deploy(self, script: str | None, uri: str | None, options: Mapping[str, str]) -> str:
        """Start a script, given as text or by its address, outside of the session, and return the name of its process.

        The script has the options of the session and these.
        """

    def describe(self, error: BaseException) -> GatewayError:
        """Return an error of a statement as the chain of its causes."""

    def close(self) -> None:
        """Release what the session holds."""


@dataclass(frozen=True)
class Page:
    """An answer to a request for rows.

    Attributes:
        kind: NOT_READY, PAYLOAD or EOS.
        result: the result; None if it is not ready.
        rows: the rows, each with its kind.
        next_token: the token of the next page; None at the end.
    """

    kind: str
    result: Result | None = None
    rows: Sequence[tuple[str, Sequence[Any]]] = ()
    next_token: int | None = None


class Pages:
    """The rows of a result, page by page. Thread-safe."""

    def __init__(self, result: Result) -> None:
        self.result = result
        self._changed = threading.Condition()
        self._unread: deque[tuple[str, Sequence[Any]]] = deque()
        self._last: list[tuple[str, Sequence[Any]]] = []
        self._next_token = 0
        #: whether no more rows will arrive
        self._is_complete = False
        self._is_closed = False
        self._is_over = False
        self._failure: BaseException | None = None
        if result.is_query:
            threading.Thread(target=self._read, name="penstock-gateway-rows", daemon=True).start()
        else:
            self._unread.extend(result.rows)
            self._is_complete = True

    def _read(self) -> None:
        """Read the rows of a query as they arrive."""
        failure: BaseException | None = None
        try:
            for row in self.result.rows:
                with self._changed:
                    self._unread.append(row)
                    self._changed.notify_all()
                    while len(self._unread) >= PAGE_ROWS_MAX and not self._is_closed:
                        self._changed.wait()
                    if self._is_closed:
                        break
        except BaseException as error:  # noqa: BLE001 - the client gets it with the next page
            failure = error
        with self._changed:
            self._failure, self._is_complete = failure, True
            self._changed.notify_all()

    def fetch(self, token: int, patience: float = PATIENCE_SECONDS) -> Page:
        """Return the page of a token. All but the first wait for rows, but not longer than `patience` (s).

        Raises:
            GatewayError: for a token out of turn.
            Exception: the failure of the query.
        """
        with self._changed:
            if token == self._next_token > 0 and not self._is_over:
                self._changed.wait_for(lambda: self._unread or self._is_complete, patience)
            if token == self._next_token:
                return self._advance()
            if token == self._next_token - 1 and token >= 0:
                return Page("PAYLOAD", self.result, list(self._last), self._next_token)
            expected = f"{self._next_token} or {self._next_token - 1}" if self._next_token else "0"
            raise execution_error(f"Expecting token to be {expected}, but found {token}.")

    def _advance(self) -> Page:
        self._last = []
        is_first_of_query = self.result.is_query and self._next_token == 0
        if self._is_complete and not self._unread and not is_first_of_query:
            if self._failure is not None:
                raise self._failure
            self._is_over = True
            return Page("EOS", self.result)
        while self._unread and len(self._last) < PAGE_ROWS_MAX:
            self._last.append(self._unread.popleft())
        self._changed.notify_all()
        self._next_token += 1
        return Page("PAYLOAD", self.result, list(self._last), self._next_token)

    def close(self) -> None:
        """End the query, and stop reading."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self.result.close()


class Operation:
    """A submitted statement.

    Args:
        run: runs it, and returns its result.
        describe: returns a failure as the chain of its causes.
        statement: its text.
    """

    def __init__(
        self,
        run: Callable[[Callable[[], bool]], Result],
        describe: Callable[[BaseException], GatewayError],
        statement: str = "",
    ) -> None:
        self.handle = str(uuid.uuid4())
        self._run = run
        self._describe = describe
        self._statement = statement
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._pages: Pages | None = None
        self._failure: GatewayError | None = None
        self.status = Status.PENDING

    def execute(self) -> None:
        """Run the statement, unless it was cancelled before."""
        with self._lock:
            if self.status is not Status.PENDING:
                return
            self.status = Status.RUNNING
        try:
            pages = Pages(self._run(lambda: self.status is not Status.RUNNING))
        except BaseException as error:  # noqa: BLE001 - the client gets it
            if not isinstance(error, PenstockError):
                _log.warning("operation %s failed unexpectedly", self.handle, exc_info=error)
            self._end(Status.ERROR, failure=self._failed(self._describe(error)))
            return
        if not self._end(Status.FINISHED, pages):
            pages.close()  # it was cancelled or closed in the meantime

    def _failed(self, error: GatewayError) -> GatewayError:
        text = shorten(hide(self._statement), STATEMENT_CHARS_MAX)
        where = f"\nThe statement is: {text}" if text else ""
        return error.within((_SERVICE, f"Failed to execute the operation {self.handle}.{where}"))

    def _end(self, status: Status, pages: Pages | None = None, failure: GatewayError | None = None) -> bool:
        with self._lock:
            is_running = not self.status.is_terminal
            if is_running:
                self._pages, self._failure = pages, failure
                self.status = status
        self._done.set()
        return is_running

    def wait(self) -> None:
        """Wait until the statement has run; raise its failure."""
        self._done.wait()
        self._raise_failure()

    def _raise_failure(self) -> None:
        """Raise the failure of the statement. Each caller gets an exception of its own, with its own traceback."""
        if self._failure is not None:
            raise GatewayError(*self._failure.causes)

    def fetch(self, token: int, patience: float = PATIENCE_SECONDS) -> Page:
        """Return a page of its result.

        Raises:
            GatewayError: if the statement or its query has failed, was cancelled, or the token is out of turn.
        """
        self._done.wait(patience)
        self._raise_failure()
        if not self.status.is_terminal:
            return Page("NOT_READY", next_token=token)
        if self._pages is None or self.status is not Status.FINISHED:
            raise api_error(f"Can not fetch results from the {self.handle} in {self.status.value} status.")
        try:
            return self._pages.fetch(token, patience)
        except GatewayError:
            raise
        except BaseException as error:
            text = shorten(hide(self._statement), STATEMENT_CHARS_MAX)
            message = f"Error while retrieving result.\nThe statement is: {text}"
            raise self._describe(error).within((_SERVICE, message)) from error

    def cancel(self) -> None:
        """Cancel the statement; raise `GatewayError` if it has ended."""
        status = self.status
        if not self._end(Status.CANCELED):
            raise api_error(
                f"Failed to convert the Operation Status from {status.value} to CANCELED for {self.handle}."
            )

    def close(self) -> None:
        """End the statement and its query."""
        self._end(Status.CLOSED)
        with self._lock:
            pages, self._pages, self.status = self._pages, None, Status.CLOSED
        if pages is not None:
            pages.close()


class GatewaySession:
    """A session: its operations, and the thread that runs them in the order of their arrival.

    Args:
        engine: runs the statements.
        name: the name that the client gave it.
        now: a monotonic clock (s).
    """

    def __init__(self, engine: Engine, name: str | None, now: Callable[[], float]) -> None:
        self.handle = str(uuid.uuid4())
        self.name = name
        self.engine = engine
        self._now = now
        self.used_at = now()
        self._lock = threading.Lock()
        self._operations: dict[str, Operation] = {}
        self._waiting: deque[Operation] = deque()
        self._arrived = threading.Condition(self._lock)
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def use(self) -> GatewaySession:
        """Note that a client needs the session."""
        self.used_at = self._now()
        return self

    def submit(self, statement: str, options: Mapping[str, str]) -> str:
        """Submit a statement, and return the handle of its operation."""
        remember(options)
        return self._submit(lambda is_cancelled: self.engine.run(statement, options, is_cancelled), statement)

    def submit_refresh(self, request: TableRefresh) -> str:
        """Submit the refresh of a materialized table, and return the handle of its operation."""
        remember(request.options)
        return self._submit(lambda is_cancelled: self.engine.refresh(request))

    def _submit(self, run: Callable[[Callable[[], bool]], Result], statement: str = "") -> str:
        operation = Operation(run, self.engine.describe, statement)
        with self._lock:
            self._operations[operation.handle] = operation
        self._begin(operation)
        return operation.handle

    def call(self, function: Callable[[], Any], statement: str = "") -> Any:
        """Call a function in the thread of the session, after the statements before it, and return its result."""
        values: list[Any] = []

        def run(is_cancelled: Callable[[], bool]) -> Result:
            values.append(function())
            return Result("[]", lambda *_: "", iter(()))

        operation = Operation(run, self.engine.describe, statement)
        self._begin(operation)
        operation.wait()
        if not values:
            raise api_error(f"Session '{self.handle}' does not exist.")  # it was closed in the meantime
        return values[0]

    def _begin(self, operation: Operation) -> None:
        with self._arrived:
            if self._is_closed:
                raise api_error(f"Session '{self.handle}' does not exist.")
            self._waiting.append(operation)
            self._arrived.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="penstock-gateway-session", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            with self._arrived:
                self._arrived.wait_for(lambda: self._waiting or self._is_closed)
                if not self._waiting:
                    break
                operation = self._waiting.popleft()
            operation.execute()
        with suppress(Exception):  # nobody waits for it
            self.engine.close()

    def operation(self, handle: str) -> Operation:
        """Return an operation; raise `GatewayError` if it is unknown or closed."""
        with self._lock:
            operation = self._operations.get(handle)
        if operation is None:
            raise api_error(f"Can not find the submitted operation in the OperationManager with the {handle}.")
        return operation

    def close_operation(self, handle: str) -> None:
        """Close an operation and forget it, if it is known."""
        with self._lock:
            operation = self._operations.pop(handle, None)
        if operation is not None:
            operation.close()

    def close(self) -> None:
        """End the session with all its operations."""
        with self._arrived:
            operations = [*self._operations.values(), *self._waiting]
            self._operations.clear()
            self._is_closed = True
            self._arrived.notify()
            is_idle = self._thread is None
        for operation in operations:
            with suppress(Exception):  # the others are to end as well
                operation.close()
        if is_idle:
            self.engine.close()


@dataclass(frozen=True)
class SessionSettings:
    """How many sessions there may be, and how long (s) one may be idle; 0 for ever."""

    sessions_max: int = 1_000_000
    idle_seconds: float = 600.0


@dataclass
class Sessions:
    """The sessions of a gateway. Thread-safe.

    Args:
        make_engine: returns the engine of a new session with these options.
        settings: their bounds.
        now: a monotonic clock (s).
        workflows: the embedded scheduler, if there is one.
    """

    make_engine: Callable[[Mapping[str, str]], Engine]
    settings: SessionSettings = field(default_factory=SessionSettings)
    now: Callable[[], float] = time.monotonic
    workflows: Workflows | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _sessions: dict[str, GatewaySession] = field(default_factory=dict)

    def open(self, name: str | None, options: Mapping[str, str]) -> GatewaySession:
        """Open a session.

        Raises:
            GatewayError: if there are too many, or an option is wrong.
        """
        remember(options)
        with self._lock:
            if len(self._sessions) >= self.settings.sessions_max:
                raise api_error(
                    f"Failed to create session, the count of active sessions exceeds the max count: "
                    f"{self.settings.sessions_max}. Close one, or raise sql-gateway.session.max-num."
                )
        try:
            session = GatewaySession(self.make_engine(options), name, self.now)
        except PenstockError as error:
            raise GatewayError(("java.lang.IllegalArgumentException", hide(str(error)))) from error
        with self._lock:
            self._sessions[session.handle] = session
        _log.info("session %s is open", session.handle)
        return session

    def find(self, handle: str) -> GatewaySession:
        """Return a session, which counts as its use; raise `GatewayError` if it does not exist."""
        with self._lock:
            session = self._sessions.get(handle)
        if session is None:
            raise api_error(f"Session '{handle}' does not exist.")
        return session.use()

    def list(self) -> list[GatewaySession]:
        """Return the open sessions."""
        with self._lock:
            return [*self._sessions.values()]

    def close(self, handle: str, why: str = "by its client") -> None:
        """End a session; raise `GatewayError` if it does not exist."""
        with self._lock:
            session = self._sessions.pop(handle, None)
        if session is None:
            raise api_error(f"Session '{handle}' does not exist.")
        session.close()
        _log.info("session %s is closed %s", handle, why)

    def end_idle(self) -> None:
        """End the sessions that were not used for too long."""
        if self.settings.idle_seconds <= 0:
            return
        with self._lock:
            late = self.now() - self.settings.idle_seconds
            idle = [session.handle for session in self._sessions.values() if session.used_at < late]
        for handle in idle:
            with suppress(GatewayError):  # its client was faster
                self.close(handle, "because it was idle")

    def end_all(self) -> None:
        """End all sessions."""
        with self._lock:
            handles = list(self._sessions)
        for handle in handles:
            with suppress(GatewayError):
                self.close(handle, "with the gateway")

    def __len__(self) -> int:
        return len(self._sessions)


def parse_handle(value: str, name: str) -> str:
    """Return a handle in its usual form.

    Raises:
        WrongValueError: if it is none.
    """
    if _UUID.fullmatch(value):
        return value.lower()
    raise WrongValueError(f'Cannot resolve path parameter ({name}) from value "{value[:100]}".')
