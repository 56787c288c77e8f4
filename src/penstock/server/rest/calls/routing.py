"""Requests and answers of the REST API: results of handlers, errors, numbers in JSON, entries of the table of routes.

**Results** (`Empty`, `Text`, `Html`, `Encoded`, `Answer`) are returned by handlers whose result is not a value that
becomes JSON.

`RestError` has Flink's status codes and its form `{"errors": [...]}`.

**Numbers** have the form of Flink's JSON: distributions of durations and sizes, and NaN as a string.

`Route` is an entry of the table of routes, and `Call` the argument of its handler.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

import msgspec

from penstock.runtime.job.view import JobView, VertexView
from penstock.server.dispatcher import DispatchedJob

if TYPE_CHECKING:
    from penstock.server.rest.calls.context import RestContext


#: The content types that Flink sends.
JSON_TYPE = "application/json; charset=UTF-8"
TEXT_TYPE = "text/plain; charset=UTF-8"
HTML_TYPE = "text/html; charset=UTF-8"


class Empty(msgspec.Struct, frozen=True):
    """An empty answer: `{}`."""


@dataclass(frozen=True)
class Text:
    """A file as plain text."""

    text: str


class Html:
    """A page with a form; its handler builds the answer itself."""


@dataclass(frozen=True)
class Encoded:
    """JSON that was encoded earlier for the same view of the same job."""

    body: bytes


@dataclass(frozen=True)
class Answer:
    """The response as bytes.

    Attributes:
        asker: the role that just logged in.
        has_rows: whether the body has the rows of a query, in which nothing is hidden.
    """

    code: int
    body: bytes
    content_type: str = JSON_TYPE
    headers: dict[str, str] = field(default_factory=dict)
    asker: str | None = None
    has_rows: bool = False


_encoder = msgspec.json.Encoder()


def encoded(value: Any) -> bytes:
    """Encode a value as JSON. NaN must already be the string "NaN" (`shapes.numbers`)."""
    return _encoder.encode(value)


def build_answer(code: int, value: Any) -> Answer:
    """Convert a handler's result to a response."""
    if isinstance(value, Answer):
        return value
    if isinstance(value, Text):
        return Answer(code, value.text.encode("utf-8", "replace"), TEXT_TYPE)
    if isinstance(value, Encoded):
        return Answer(code, value.body)
    return Answer(code, encoded(value))


def error_answer(code: int, message: str) -> Answer:
    """Build an error response in Flink's form."""
    return Answer(code, encoded({"errors": [message]}))


class RestError(Exception):
    """A request that fails with an HTTP error.

    Args:
        code: the HTTP status, such as 404.
        message: a readable explanation.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def bad_request(message: str) -> RestError:
    """Return a 400: the request itself is wrong."""
    return RestError(400, message)


def not_found(message: str) -> RestError:
    """Return a 404: the requested thing does not exist."""
    return RestError(404, message)


#: A number, or the string for NaN.
Number: TypeAlias = float | Literal["NaN"]


class Summary(msgspec.Struct, frozen=True):
    """The distribution of durations or sizes of checkpoints or rescales."""

    min: int
    max: int
    avg: int
    p50: Number
    p90: Number
    p95: Number
    p99: Number
    p999: Number


class Spread(msgspec.Struct, frozen=True):
    """The distribution of a metric over subtasks."""

    min: int
    max: int
    avg: int
    sum: int
    median: int
    p25: int
    p75: int
    p95: int


def percentile(ordered: Sequence[int], part: float) -> float:
    """Return a percentile, interpolated between neighbours as Commons Math does by default."""
    position = part * (len(ordered) + 1)
    if position < 1:
        return float(ordered[0])
    if position >= len(ordered):
        return float(ordered[-1])
    below = math.floor(position)
    lower, upper = ordered[below - 1], ordered[below]
    return lower + (position - below) * (upper - lower)


def summary(values: Sequence[int]) -> Summary:
    """Summarize any number of values; percentiles of no values are NaN."""
    if not values:
        return Summary(0, 0, 0, "NaN", "NaN", "NaN", "NaN", "NaN")
    ordered = sorted(values)
    parts = (percentile(ordered, part) for part in (0.5, 0.9, 0.95, 0.99, 0.999))
    return Summary(ordered[0], ordered[-1], sum(ordered) // len(ordered), *parts)


def spread(values: Sequence[int]) -> Spread:
    """Summarize the values of some subtasks; all zeros without values."""
    if not values:
        return Spread(0, 0, 0, 0, 0, 0, 0, 0)
    ordered = sorted(values)
    median, p25, p75, p95 = (round(percentile(ordered, part)) for part in (0.5, 0.25, 0.75, 0.95))
    return Spread(ordered[0], ordered[-1], sum(ordered) // len(ordered), sum(ordered), median, p25, p75, p95)


def number(value: float) -> Number:
    """Convert a number for JSON: NaN and infinities become "NaN"."""
    return value if math.isfinite(value) else "NaN"


T = TypeVar("T")

_HEX32: Final = re.compile("[0-9a-fA-F]{32}")
_INTEGER: Final = re.compile("[0-9]{1,18}")
#: Path parameters with a fixed form; others are any text.
_FORMS: Final = {
    "jobid": _HEX32,
    "vertexid": _HEX32,
    "applicationid": _HEX32,
    "triggerid": _HEX32,
    "rescaleuuid": _HEX32,
    "programid": _HEX32,
    "datasetid": _HEX32,
    "subtaskindex": _INTEGER,
    "attempt": _INTEGER,
    "checkpointid": _INTEGER,
}

#: The role that a route needs, if tokens are required. A route "reveals" if its answer may contain settings, logs,
#: stack traces, file paths, user values, or the text of an exception, which may quote a record. Login routes are open
#: to all.
Access = Literal["open", "reveals", "changes", "login"]
#: Last parts of paths whose handlers query worker processes.
_ASKS_PROCESSES: Final = frozenset({"log", "logs", ":filename", "stdout", "thread-dump", "flamegraph", "accumulators"})
#: Thread pools, by what their handlers wait for: nothing, a worker's process, a program's process, or a statement.
Pool = Literal["quick", "workers", "programs", "statements"]


@dataclass(frozen=True)
class Parameter:
    """A query parameter.

    Attributes:
        name: its name in the URL.
        description: its effect.
        values: the allowed values; empty for any text.
        kind: its type in JSON schema.
    """

    name: str
    description: str
    values: tuple[str, ...] = ()
    kind: Literal["string", "integer", "boolean"] = "string"


@dataclass(frozen=True)
class Call:
    """A request, as its handler sees it.

    Attributes:
        context: the state that all handlers share.
        path: the path parameters, checked; ids in lower case.
        query: the query parameters; the last value wins if one is repeated.
        body: the raw body.
        content_type: the value of the Content-Type header.
        headers: the request's headers, by names in lower case.
    """

    context: RestContext
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    content_type: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    def job(self) -> DispatchedJob:
        """Return the job that the path names; 404 if it is unknown."""
        job = self.context.dispatcher.job(self.path["jobid"])
        if job is None:
            raise not_found(f"Job {self.path['jobid']} not found")
        return job

    def view(self) -> JobView:
        """Return a view of that job, at most half a second old."""
        return self.context.view(self.job())

    def vertex(self, view: JobView) -> VertexView:
        """Return the vertex that the path names; 404 if the job has no such vertex."""
        for vertex in view.vertices:
            if vertex.vertex_id == self.path["vertexid"]:
                return vertex
        raise not_found(f"Vertex {self.path['vertexid']} not found in job {view.job_id}")

    def subtask(self, vertex: VertexView) -> int:
        """Return the subtask that the path names; 404 if the vertex has no such subtask."""
        index = int(self.path["subtaskindex"])
        if index >= vertex.parallelism:
            raise not_found(f"Subtask {index} not found: vertex {vertex.vertex_id} has {vertex.parallelism}")
        return index

    def once_a_view(self, name: str, make: Callable[[JobView], Any]) -> Encoded:
        """Return JSON made from the job's view, made once per view for all requests."""
        view = self.view()
        return Encoded(self.context.cache.get(view, name, lambda: encoded(make(view))))

    def json(self, kind: type[T]) -> T:
        """Decode the body as a value of a type; 400 if it does not match. A missing body counts as an empty object."""
        try:
            return msgspec.json.decode(self.body or b"{}", type=kind, strict=True)
        except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
            raise bad_request(f"Bad request received. Failed to parse request body: {error}") from error


@dataclass(frozen=True)
class Route:
    """One operation of the API.

    Attributes:
        method: the HTTP method.
        path: the path in Flink's notation, such as /jobs/:jobid.
        handler: answers requests in a pool thread; it may block.
        summary: its effect, for the OpenAPI document.
        answers: the type of the answer.
        code: the HTTP status of an answer.
        access: whether it reveals or changes something, which may need a token.
        query: the query parameters that it reads.
        body: the type of the body; None if it takes none.
        is_upload: whether its body is a form with a file.
        takes_any_id: whether ids in its path may have any form.
    """

    method: str
    path: str
    handler: Callable[[Call], Any]
    summary: str
    answers: Any
    code: int = 200
    access: Access = "open"
    query: tuple[Parameter, ...] = ()
    body: Any = None
    is_upload: bool = False
    takes_any_id: bool = False

    @property
    def parameters(self) -> list[str]:
        """The names of the path parameters."""
        return re.findall(r":(\w+)", self.path)

    @property
    def must_be_own(self) -> bool:
        """Whether a request from another site's page is refused."""
        return self.access == "changes" or (self.access == "login" and self.method == "POST")

    @property
    def pool(self) -> Pool:
        """The thread pool for the handler."""
        if self.path.startswith("/jars"):
            return "programs"
        if self.path.startswith("/sessions"):
            return "statements"
        return "workers" if self.path.rpartition("/")[2] in _ASKS_PROCESSES else "quick"

    def check(self, path: Mapping[str, str]) -> dict[str, str]:
        """Check and return the path parameters; raise 400 for one of the wrong form."""
        parameters = {}
        for name, value in path.items():
            form = _FORMS.get(name)
            if form is not None and not form.fullmatch(value) and not self.takes_any_id:
                raise bad_request(f"Cannot resolve path parameter ({name}) from value {value[:100]!r}.")
            parameters[name] = value.lower() if form is _HEX32 else value
        return parameters


def build_parameter_schema(name: str) -> dict[str, Any]:
    """Return the JSON schema of a path parameter."""
    form = _FORMS.get(name)
    if form is _INTEGER:
        return {"type": "integer", "minimum": 0, "maximum": 10**18 - 1}
    return {"type": "string", "pattern": "^[0-9a-fA-F]{32}$"} if form is _HEX32 else {"type": "string", "minLength": 1}
