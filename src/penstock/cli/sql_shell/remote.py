"""The shell over a gateway: statements run there, and their rows are shown here, page by page.

`GatewayClient` speaks the REST form of Flink's SQL gateway, so the shell also connects to a gateway of Flink.

`GatewayTables` is a session of a gateway. Heartbeats keep it alive while its user thinks. Its options are read back
after each SET and RESET, because the shell's display depends on them.

`GatewayShell` sends all statements but HELP, CLEAR and QUIT. Values arrive as text, in the form that Flink's client
shows. Jobs belong to the gateway, and go on when the shell ends; a query ends with the wait for its rows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from penstock.base.config_options import ConfigOption
from penstock.base.errors import OperationError
from penstock.base.options import RECOVERY_PATH
from penstock.cli.client.rest_client import Address, RestClient
from penstock.cli.sql_shell import display
from penstock.cli.sql_shell.shell import SAVEPOINT_PATH, Shell, write_out
from penstock.cli.sql_shell.statements import RefusedStatement, Statement
from penstock.sql.catalogs.columns import ResolvedSchema
from penstock.sql.data import types
from penstock.sql.executor import ChangelogRow
from penstock.sql.logical.nodes import PlanColumn, RowSchema
from penstock.sql.parser import SqlParserError, parse_statement, statements
from penstock.sql.session.result import PrintStyle, RawContent, ResultKind, Tableau, TableResult
from penstock.sql.session.session import DML_SYNC, TableConfig
from penstock.sql.statements.insert import STRING

#: The interval (s) of heartbeats.
HEARTBEAT_SECONDS: Final = 60.0
#: The shortest and the longest pause (s) before a gateway that has no rows yet is asked again.
PAUSE_SECONDS: Final = (0.02, 0.25)
#: The newest version of the protocol that this client knows.
NEWEST: Final = 4
_KINDS: Final = {"INSERT": "+I", "UPDATE_BEFORE": "-U", "UPDATE_AFTER": "+U", "DELETE": "-D"}
#: The types whose values have a width of their own; all others are shown as texts are.
_OF_WIDTH: Final[Mapping[str, Callable[[Mapping[str, Any]], types.DataType]]] = {
    "BOOLEAN": lambda _: types.BooleanType(),
    "TINYINT": lambda _: types.TinyIntType(),
    "SMALLINT": lambda _: types.SmallIntType(),
    "INTEGER": lambda _: types.IntType(),
    "BIGINT": lambda _: types.BigIntType(),
    "DECIMAL": lambda shown: types.DecimalType(shown["precision"], shown["scale"]),
    "DATE": lambda _: types.DateType(),
    "TIME_WITHOUT_TIME_ZONE": lambda shown: types.TimeType(shown["precision"]),
    "TIMESTAMP_WITHOUT_TIME_ZONE": lambda shown: types.TimestampType(shown["precision"]),
    "TIMESTAMP_WITH_LOCAL_TIME_ZONE": lambda shown: types.LocalZonedTimestampType(shown["precision"]),
}


class GatewayClient(RestClient):
    """A client of one gateway."""

    remedy = "start one with penstock gateway, or name its address with --gateway host:port"

    def refuse(self, code: int, text: str, errors: Sequence[str]) -> OperationError:
        """Return the innermost cause of a failed statement, as Flink's client shows it."""
        stack = errors[-1] if errors else text
        if "Caused by: " not in stack and len(errors) < 2:
            return super().refuse(code, text, errors)
        cause = stack.rpartition("Caused by: ")[2] if "Caused by: " in stack else stack
        return RefusedStatement(cause.partition("\n\tat ")[0].partition("\nEnd of exception")[0].strip())


class _Operation:
    """A statement that was sent to a session."""

    def __init__(self, client: GatewayClient, session: str, statement: str) -> None:
        self._client = client
        handle = client.request("POST", f"{session}/statements", {"statement": statement})["operationHandle"]
        self._path = f"{session}/operations/{handle}"
        self._is_closed = False

    def first_page(self) -> dict[str, Any]:
        """Wait until the statement has run; if this is interrupted, cancel it."""
        try:
            return next(self.pages(f"{self._path}/result/0?rowFormat=PLAIN_TEXT"))
        except OperationError:
            self.close()
            raise
        except BaseException:
            with suppress(OperationError):  # it may have ended in the meantime
                self._client.request("POST", f"{self._path}/cancel")
            self.close()
            raise

    def pages(self, address: str | None) -> Iterator[dict[str, Any]]:
        """Yield the pages from an address on; skip answers without a result, and ask again."""
        pause, longest = PAUSE_SECONDS
        while address is not None:
            page: dict[str, Any] = self._client.get(address)
            address = page.get("nextResultUri")
            if page["resultType"] != "NOT_READY":
                yield page
            if page["resultType"] == "NOT_READY" or not page["results"]["data"]:
                time.sleep(pause)
                pause = min(2 * pause, longest)
            else:
                pause = PAUSE_SECONDS[0]

    def rows(self, first: dict[str, Any]) -> Iterator[ChangelogRow]:
        """Yield the rows of the first page and of those after it, then close the operation."""
        page: dict[str, Any] | None = first
        following = self.pages(first.get("nextResultUri"))
        try:
            while page is not None:
                for row in page["results"]["data"]:
                    yield _KINDS[row["kind"]], tuple(row["fields"])
                page = next(following, None)
        finally:
            self.close()

    def close(self) -> None:
        """End the statement and its query."""
        if not self._is_closed:
            self._is_closed = True
            with suppress(OperationError):  # the session may have ended
                self._client.request("DELETE", f"{self._path}/close")


class RemoteResult:
    """The result of a statement: its rows, whether it is a query, and the id of the job that it has started.

    `is_raw`: whether it is a text, such as a plan, which is shown without borders.
    """

    def __init__(self, operation: _Operation, first: dict[str, Any], is_raw: bool = False) -> None:
        self.is_query = bool(first["isQueryResult"])
        self.job_id: str | None = first.get("jobID")
        columns = first["results"]["columns"]
        names = [str(column["name"]) for column in columns]
        kinds = [_shown_type(column["logicalType"]) for column in columns]
        schema = RowSchema(tuple(map(PlanColumn, names, kinds)))
        style: PrintStyle = RawContent(schema)
        if not is_raw:
            style = Tableau(schema, fits_rows=True, width_max=_NO_WIDTH, null="")
        rows = operation.rows(first)
        if not self.is_query:
            rows = iter(list(rows))
        kind = ResultKind[first["resultKind"]]
        on_close = operation.close
        self.table = TableResult(kind, ResolvedSchema.physical(names, kinds), lambda: rows, style, on_close=on_close)


_NO_WIDTH: Final = 1 << 30


def _shown_type(logical_type: Mapping[str, Any]) -> types.DataType:
    build = _OF_WIDTH.get(logical_type["type"])
    return STRING if build is None else build(logical_type)


class GatewayTables:
    """See the module docstring.

    Args:
        client: asks the gateway.
        options: the options of the session.
        name: its name; None for none.

    Raises:
        OperationError: if no gateway answers, or it opens no session.
    """

    def __init__(self, client: GatewayClient, options: Mapping[str, str], name: str | None = None) -> None:
        self._client = client
        known = [int(version[1:]) for version in client.get("/api_versions")["versions"] if version[1:].isdigit()]
        version = max((number for number in known if number <= NEWEST), default=1)
        body = {"properties": dict(options)} | ({} if name is None else {"sessionName": name})
        self._session = f"/v{version}/sessions"
        self._session += f"/{client.request('POST', self._session, body)['sessionHandle']}"
        self._config = TableConfig()
        self._ends = threading.Event()
        self.refresh_config()
        threading.Thread(target=self._beat, name="penstock-shell-heartbeat", daemon=True).start()

    def get_config(self) -> TableConfig:
        """Return the options of the session, as they were after the last SET or RESET."""
        return self._config

    def refresh_config(self) -> None:
        """Read the options of the session."""
        options = self._client.get(self._session)["properties"]
        for key in set(self._config.to_map()) - set(options):
            self._config.reset(key)
        for key, value in options.items():
            self._config.set(key, value)

    def read(self, option: ConfigOption[Any]) -> Any:
        """Return an option of the session."""
        return self._config.read(option)

    def send(self, statement: str, is_raw: bool = False) -> RemoteResult:
        """Run a statement, and return its result when its first page is there; `is_raw`: see `RemoteResult`.

        Raises:
            RefusedStatement: if it fails.
            OperationError: if the gateway does not answer.
        """
        operation = _Operation(self._client, self._session, statement)
        return RemoteResult(operation, operation.first_page(), is_raw)

    def execute_sql(self, statement: str) -> TableResult:
        """Run a statement; see `send`."""
        return self.send(statement).table

    def complete(self, before: str, after: str) -> Sequence[str]:
        """Return the words that may stand at a place; none if the gateway does not answer."""
        body = {"statement": before + after, "position": len(before)}
        try:
            return list(self._client.request("GET", f"{self._session}/complete-statement", body)["candidates"])
        except OperationError:
            return []  # the statement reports the error when it runs

    def _beat(self) -> None:
        while not self._ends.wait(HEARTBEAT_SECONDS):
            with suppress(OperationError):  # the next statement reports it
                self._client.request("POST", f"{self._session}/heartbeat")

    def close(self) -> None:
        """End the session, and its queries with it."""
        if not self._ends.is_set():
            self._ends.set()
            with suppress(OperationError):  # the gateway may have ended
                self._client.request("DELETE", self._session)


class GatewayShell(Shell):
    """See the module docstring.

    Args:
        tables: the session.
        is_terminal: whether the output can be redrawn.
        clock: a clock (s).
    """

    def __init__(
        self, tables: GatewayTables, is_terminal: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(tables, is_terminal, clock)
        self._gateway = tables

    def complete(self, before: str, after: str) -> Sequence[str]:
        """See `Shell`."""
        return self._gateway.complete(before, after)

    def run(self, statement: Statement) -> bool:
        """See `Shell`. Errors of statements are the gateway's."""
        try:
            parsed: statements.Statement | None = parse_statement(statement.text)
        except SqlParserError:
            parsed = None  # a gateway of another version may know more
        text = statement.text
        if isinstance(parsed, statements.ShellCommand):
            self.command(parsed)
            return True
        if isinstance(parsed, statements.SetOption) and parsed.key is not None and parsed.value is not None:
            display.check_option(parsed.key, parsed.value)
            if parsed.key == SAVEPOINT_PATH:
                text = f"SET {types.literal(RECOVERY_PATH.key())} = {types.literal(parsed.value)}"
        begun = self._clock()
        try:
            result = self._gateway.send(text, _is_explained(parsed))
        except KeyboardInterrupt:
            write_out("[INFO] The statement is cancelled.\n")
            return False
        if isinstance(parsed, statements.SetOption):
            self._gateway.refresh_config()
        if result.is_query:
            return self._view.show(result.table, begun)
        if parsed is not None:
            self._note_statement_set(parsed)
        if result.job_id is None:
            self._print(result.table)
            return True
        write_out(f"{self.submitted}{result.job_id}\n")
        write_out(self.completed if self._gateway.read(DML_SYNC) else "")
        return True

    def close(self) -> None:
        """End the session."""
        self._gateway.close()


def _is_explained(parsed: statements.Statement | None) -> bool:
    of_job = isinstance(parsed, statements.JobStatement) and parsed.verb == "ANALYZE"
    return of_job or isinstance(parsed, statements.Explain)


def connect(address: Address, options: Mapping[str, str], name: str | None) -> GatewayTables:
    """Open a session at a gateway."""
    return GatewayTables(GatewayClient(address), options, name)
