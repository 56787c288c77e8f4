"""The entries of the table of routes, and the argument of handlers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import msgspec

from penstock.runtime.job.view import JobView, VertexView
from penstock.server.dispatcher import DispatchedJob
from penstock.server.rest.calls.answers import Encoded, bad_request, encoded, not_found

if TYPE_CHECKING:
    from penstock.server.rest.calls.context import RestContext

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
#: Thread pools, by what their handlers wait for: nothing, a worker's process, or a program's process.
Pool = Literal["quick", "workers", "programs"]


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
