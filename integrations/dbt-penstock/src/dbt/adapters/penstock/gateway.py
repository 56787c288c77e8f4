"""Sessions and statements over the REST API of `penstock gateway`.

A `Session` runs one statement at a time. `Session.submit` starts a statement, `Statement.result` waits for it. Values
are read in the gateway's plain text and converted by the type of their column, because JSON loses zeros of decimals,
and has no form for some maps.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime
from datetime import time as time_of_day
from decimal import Decimal
from typing import Any, Final

import requests

#: how long (s) the gateway may take to answer a call; no call waits for a statement
CALL_SECONDS: Final = 60.0
#: how often (s) a statement that runs is asked for
ASK_SECONDS: Final = 0.1
_CAUSE: Final = re.compile(r"(?:^|Caused by: )([\w.$]+): (.*?)(?=\n\tat |\Z)", re.DOTALL)
#: `!=`, and all in which it is no operator: texts, names and comments
_BANG: Final = re.compile(r"""'(?:[^']|'')*'|`[^`]*`|"[^"]*"|--[^\n]*|/\*.*?\*/|!=""", re.DOTALL)


class GatewayError(Exception):
    """A statement has failed, or the gateway cannot be reached."""


class GatewayUnreachableError(GatewayError):
    """The gateway does not answer."""


@dataclass(frozen=True)
class Column:
    """A column of a result: its name, its type as Flink's gateway names it, and whether it may be NULL."""

    name: str
    type: str
    is_nullable: bool


@dataclass
class Rows:
    """The result of a statement."""

    columns: list[Column] = field(default_factory=list)
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    job_id: str | None = None

    def first(self, column: str) -> list[Any]:
        """Return the values of a column."""
        index = [known.name for known in self.columns].index(column)
        return [row[index] for row in self.rows]


def _timestamp(text: str) -> datetime | str:
    whole, _, fraction = text.partition(".")
    try:
        return datetime.fromisoformat(f"{whole}.{fraction[:6]:0<6}" if fraction else whole)
    except ValueError:
        return text  # a year that Python does not have


def _or_text(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    def parsed(text: str) -> Any:
        try:
            return parse(text)
        except ValueError:
            return text

    return parsed


_PARSERS: Final[dict[str, Callable[[str], Any]]] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT"), int),
    **dict.fromkeys(("FLOAT", "DOUBLE"), float),
    "DECIMAL": Decimal,
    "BOOLEAN": lambda text: text == "TRUE",
    "DATE": _or_text(date.fromisoformat),
    "TIME_WITHOUT_TIME_ZONE": _or_text(time_of_day.fromisoformat),
    "TIMESTAMP_WITHOUT_TIME_ZONE": _timestamp,
    "TIMESTAMP_WITH_LOCAL_TIME_ZONE": _timestamp,
}


def message_of(errors: Sequence[str]) -> str:
    """Return the innermost cause of an error of the gateway, without the stack and Java's names of classes."""
    causes = _CAUSE.findall(errors[-1].replace("<Exception on server side:\n", "")) if errors else []
    return str(causes[-1][1]).strip() if causes else "\n".join(errors)


def without_bang(sql: str) -> str:
    """Return a statement with `<>` for `!=`, which dbt and its packages write, and Flink's SQL does not have."""
    return _BANG.sub(lambda match: "<>" if match[0] == "!=" else match[0], sql)


class Gateway:
    """A gateway.

    Args:
        url: its address, such as `http://localhost:8083`.
        token: the token of the operator, if it wants one.
        verify: whether certificates are checked, or the file with the issuer's.
    """

    def __init__(self, url: str, token: str | None = None, verify: bool | str = True) -> None:
        self.url = url
        self._http = requests.Session()
        self._http.verify = verify
        self._http.trust_env = False
        if token:
            self._http.headers["Authorization"] = f"Bearer {token}"
        self._lock = threading.Lock()

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Call the gateway, and return its answer.

        Raises:
            GatewayError: if the call fails.
        """
        try:
            with self._lock:
                answer = self._http.request(method, f"{self.url}{path}", json=body, timeout=CALL_SECONDS)
            content = answer.json()
        except (requests.RequestException, ValueError) as error:
            raise GatewayUnreachableError(f"the gateway at {self.url} does not answer: {error}") from error
        if answer.status_code >= 400 or "errors" in content:
            raise GatewayError(message_of(content.get("errors", [str(content)])))
        return content

    def open(self, options: Mapping[str, str]) -> Session:
        """Open a session with options."""
        handle = self.call("POST", "/v4/sessions", {"sessionName": "dbt", "properties": dict(options)})
        return Session(self, handle["sessionHandle"])


class Session:
    """A session of the gateway."""

    def __init__(self, gateway: Gateway, handle: str) -> None:
        self._gateway = gateway
        self.path = f"/v4/sessions/{handle}"
        self._running: Statement | None = None

    def submit(self, sql: str, options: Mapping[str, str] | None = None) -> Statement:
        """Start a statement with further options."""
        body = {"statement": without_bang(sql), "executionConfig": dict(options or {})}
        answer = self._gateway.call("POST", f"{self.path}/statements", body)
        self._running = Statement(self._gateway, f"{self.path}/operations/{answer['operationHandle']}")
        return self._running

    def run(self, sql: str, options: Mapping[str, str] | None = None) -> Rows:
        """Run a statement, and return all of its rows."""
        statement = self.submit(sql, options)
        try:
            return statement.result()
        finally:
            self._running = None

    def cancel(self) -> None:
        """Cancel the statement that runs."""
        if self._running is not None:
            self._running.cancel()

    def close(self) -> None:
        """End the session. Jobs of INSERTs go on."""
        with suppress(GatewayError):  # it has ended already
            self._gateway.call("DELETE", self.path)


class Statement:
    """A statement that was submitted."""

    def __init__(self, gateway: Gateway, path: str) -> None:
        self._gateway = gateway
        self.path = path

    def _pages(self) -> Iterator[Mapping[str, Any]]:
        address: str | None = f"{self.path}/result/0?rowFormat=PLAIN_TEXT"
        while address is not None:
            page = self._gateway.call("GET", address)
            address = page.get("nextResultUri")
            yield page

    def result(self) -> Rows:
        """Wait for the statement, and return all of its rows."""
        result = Rows()
        parsers: list[Callable[[str], Any]] = []
        wait = 0.01
        for page in self._pages():
            if page["resultType"] == "NOT_READY":
                time.sleep(wait)
                wait = min(2 * wait, ASK_SECONDS)
                continue
            if not parsers:
                result.job_id = page.get("jobID")
                for column in page["results"]["columns"]:
                    kind = column["logicalType"]
                    result.columns.append(Column(column["name"], kind["type"], kind["nullable"]))
                parsers = [_PARSERS.get(column.type, str) for column in result.columns]
            for row in page["results"]["data"]:
                values = zip(parsers, row["fields"], strict=True)
                result.rows.append(tuple(None if value is None else parse(value) for parse, value in values))
        self.close()
        return result

    def is_done(self) -> bool:
        """Return whether the statement has ended; raise its failure."""
        page = self._gateway.call("GET", f"{self.path}/result/0?rowFormat=PLAIN_TEXT")
        return bool(page["resultType"] != "NOT_READY")

    def cancel(self) -> None:
        """Stop waiting for the statement. The job of an INSERT goes on."""
        with suppress(GatewayError):  # it has ended already
            self._gateway.call("POST", f"{self.path}/cancel")

    def close(self) -> None:
        """Release the result."""
        with suppress(GatewayError):  # it was closed with its session, or the next call says that the gateway is gone
            self._gateway.call("DELETE", f"{self.path}/close")
