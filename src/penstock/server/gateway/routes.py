"""The paths of Flink's SQL gateway, in the versions `v1` to `v4`: bodies, answers and errors.

`gateway_application` has the access checks of the REST API (`penstock.server.rest.application`): names of hosts, other
sites' pages, tokens and roles, and the audit log. The operator may do everything. A reader may look at sessions,
statuses and results, whose handles cannot be guessed.

**Versions.** Each path of a version exists only there. A path without a version belongs to the newest. Flink's clients
use the newest version of the list, and fail for one that they do not know, so the list ends with V4, that of Flink 2.3.

**Errors** have Flink's form, whose last line `Caused by:` is what its clients show. `Failure` is one. A failed call
about a session or an operation has one entry, a failed statement or fetch two.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route as StarletteRoute

from penstock.base.errors import PenstockError, WrongValueError
from penstock.base.secrets import hide
from penstock.server.gateway.sessions import (
    GatewayError,
    GatewaySession,
    Operation,
    Page,
    Result,
    RowFormat,
    Sessions,
    TableRefresh,
    Workflows,
    api_error,
    parse_handle,
)
from penstock.server.rest.application import Door, starlette_path
from penstock.server.rest.calls.context import RestContext, RestSettings
from penstock.server.rest.calls.routing import Access, Answer, Call, Empty, Route, encoded

#: What clients see in `/info`. They and tools around them know no other product, and take features from the version.
PRODUCT: Final = {"productName": "Apache Flink", "version": "2.3.0"}
VERSIONS: Final = ("v1", "v2", "v3", "v4")
#: The prefix of the next page's address, for a path without a version.
NEWEST: Final = VERSIONS[-1]

_KINDS: Final = {"+I": "INSERT", "-U": "UPDATE_BEFORE", "+U": "UPDATE_AFTER", "-D": "DELETE"}
_REST: Final = "org.apache.flink.runtime.rest.handler.RestHandlerException"
_REQUEST: Final = "org.apache.flink.runtime.rest.handler.HandlerRequestException"
_NUMBER: Final = re.compile("[+-]?[0-9]{1,19}")
_UNSUPPORTED: Final = "java.lang.UnsupportedOperationException"
_SCHEDULER: Final = "org.apache.flink.table.gateway.workflow.scheduler.SchedulerException"


class Failure(Exception):
    """A failed call, as its answer.

    Args:
        code: the HTTP status.
        error: the chain of causes.
        is_long: whether it has two entries, as failures of statements and fetches have.
    """

    def __init__(self, code: int, error: GatewayError, is_long: bool = False) -> None:
        super().__init__(code, error, is_long)
        text = f"{error}\n"
        entries = [text]
        if is_long:
            entries = [
                "Internal server error.",
                f"<Exception on server side:\n{text}\nEnd of exception on server side>",
            ]
        self.answer = Answer(code, encoded({"errors": entries}))


def _bad_parameter(kind: str, name: str, value: str) -> Failure:
    reason = f'Cannot resolve {kind} parameter ({name}) from value "{value[:100]}".'
    return Failure(400, GatewayError((_REST, f"Bad request, could not parse parameters: {reason}"), (_REQUEST, reason)))


class SessionBody(msgspec.Struct):
    """The body of POST /sessions."""

    sessionName: str | int | None = None
    properties: dict[str, str | int | float | bool] | None = None


class StatementBody(msgspec.Struct):
    """The body of POST …/statements and …/configure-session."""

    statement: str | int | None = None
    executionTimeout: int | None = None
    executionConfig: dict[str, str | int | float | bool] | None = None


class CompletionBody(msgspec.Struct):
    """The body of GET …/complete-statement."""

    position: int
    statement: str = ""


class ScriptBody(msgspec.Struct):
    """The body of POST …/scripts."""

    script: str | None = None
    scriptUri: str | None = None
    executionConfig: dict[str, str | int | float | bool] | None = None


class RefreshBody(msgspec.Struct):
    """The body of POST …/materialized-tables/{identifier}/refresh."""

    isPeriodic: bool
    scheduleTime: str | None = None
    dynamicOptions: dict[str, str] | None = None
    staticPartitions: dict[str, str] | None = None
    executionConfig: dict[str, str | int | float | bool] | None = None


class WorkflowBody(msgspec.Struct):
    """The body of the paths of the embedded scheduler; each needs some of the fields."""

    workflowName: str | None = None
    workflowGroup: str | None = None
    dynamicOptions: dict[str, str] | None = None
    materializedTableIdentifier: str | None = None
    cronExpression: str | None = None
    initConfig: dict[str, str | int | float | bool] | None = None
    executionConfig: dict[str, str | int | float | bool] | None = None
    restEndpointUrl: str | None = None


#: The names that Flink's messages give to the bodies.
_BODIES: Final[dict[type[msgspec.Struct], str]] = {
    SessionBody: "OpenSessionRequestBody",
    StatementBody: "ExecuteStatementRequestBody",
    CompletionBody: "CompleteStatementRequestBody",
    ScriptBody: "DeployScriptRequestBody",
    RefreshBody: "RefreshMaterializedTableRequestBody",
    WorkflowBody: "EmbeddedSchedulerWorkflowRequestBody",
}


def _read_body(call: Call, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(call.body or b"{}", type=kind, strict=True)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        message = f"Request did not match expected format {_BODIES[kind]}."
        raise Failure(400, GatewayError((_REST, message), (f"msgspec.{type(error).__name__}", str(error)))) from error


def _texts(options: Mapping[str, Any] | None) -> dict[str, str]:
    """Return options as text, as Flink reads them."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in (options or {}).items()
    }


def _check_timeout(body: StatementBody, doing: str) -> None:
    if body.executionTimeout is not None and body.executionTimeout > 0:
        reason = (_UNSUPPORTED, "SqlGatewayService doesn't support timeout mechanism now.")
        raise Failure(500, GatewayError(*api_error(doing).causes, reason), is_long=True)


@contextmanager
def _failing(doing: str) -> Iterator[None]:
    """Answer errors of sessions as those of a failed statement. `doing`: how Flink's message begins."""
    try:
        yield
    except GatewayError as error:
        raise Failure(500, error.within(*api_error(doing).causes), is_long=True) from error


class GatewayRoutes:
    """The handlers, over the sessions of a gateway."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def _session(self, call: Call, doing: str, is_long: bool = False) -> GatewaySession:
        """Return the session that the path names."""
        handle = _handle(call, "session_handle")
        try:
            return self._sessions.find(handle)
        except GatewayError as error:
            raise _failure(error, doing, is_long) from error

    def _operation(self, call: Call, doing: str, is_long: bool = False) -> Operation:
        handle = _handle(call, "operation_handle")
        session = self._session(call, doing, is_long)
        try:
            return session.operation(handle)
        except GatewayError as error:
            raise _failure(error, doing, is_long) from error

    # --- the gateway -------------------------------------------------------------------------------------------------

    def info(self, call: Call) -> Any:
        """Answer with the product whose protocol this is."""
        return PRODUCT

    def versions(self, call: Call) -> Any:
        """Answer with the versions, of which clients take the last."""
        return {"versions": [version.upper() for version in VERSIONS]}

    # --- sessions ----------------------------------------------------------------------------------------------------

    def open_session(self, call: Call) -> Any:
        """Open a session."""
        body: SessionBody = _read_body(call, SessionBody)
        name = None if body.sessionName is None else str(body.sessionName)
        with _failing("Failed to openSession."):
            return {"sessionHandle": self._sessions.open(name, _texts(body.properties)).handle}

    def get_session(self, call: Call) -> Any:
        """Answer with the options of a session."""
        return {"properties": dict(self._session(call, "Failed to getSessionConfig.").engine.options())}

    def close_session(self, call: Call) -> Any:
        """End a session."""
        doing = "Failed to closeSession."
        session = self._session(call, doing)
        try:
            self._sessions.close(session.handle)
        except GatewayError as error:  # another call was faster
            raise _failure(error, doing) from error
        return {"status": "CLOSED"}

    def heartbeat(self, call: Call) -> Any:
        """Note that the client of a session is there."""
        self._session(call, "Failed to getSessionConfig.")
        return Empty()

    def configure(self, call: Call) -> Any:
        """Run a statement that changes a session, and answer when it has run."""
        doing = "Failed to configure session."
        body: StatementBody = _read_body(call, StatementBody)
        session = self._session(call, doing, is_long=True)
        _check_timeout(body, doing)
        statement = "" if body.statement is None else str(body.statement)
        with _failing(doing):
            session.call(lambda: session.engine.configure(statement), statement)
        return Empty()

    def complete(self, call: Call) -> Any:
        """Answer with the words that may stand at a position."""
        doing = "Failed to get statement completion candidates."
        body: CompletionBody = _read_body(call, CompletionBody)
        session = self._session(call, doing, is_long=True)
        with _failing(doing):
            words = session.call(lambda: session.engine.complete(body.statement, body.position), body.statement)
        return {"candidates": list(words)}

    # --- statements --------------------------------------------------------------------------------------------------

    def submit(self, call: Call) -> Any:
        """Submit a statement. Its errors come with its result."""
        doing = "Failed to execute statement."
        body: StatementBody = _read_body(call, StatementBody)
        session = self._session(call, doing, is_long=True)
        _check_timeout(body, doing)
        statement = "" if body.statement is None else str(body.statement)
        with _failing(doing):
            return {"operationHandle": session.submit(statement, _texts(body.executionConfig))}

    def status(self, call: Call) -> Any:
        """Answer with the status of an operation."""
        return {"status": self._operation(call, "Failed to getOperationInfo.").status.value}

    def cancel(self, call: Call) -> Any:
        """Cancel an operation that runs."""
        doing = "Failed to cancelOperation."
        operation = self._operation(call, doing)
        try:
            operation.cancel()
        except GatewayError as error:
            raise _failure(error, doing) from error
        return {"status": operation.status.value}

    def close(self, call: Call) -> Any:
        """Close an operation, which ends its query."""
        handle = _handle(call, "operation_handle")
        self._session(call, "Failed to closeOperation.").close_operation(handle)
        return {"status": "CLOSED"}

    def fetch(self, call: Call) -> Any:
        """Answer with a page of the result of an operation."""
        token, row_format = _token(call), _row_format(call)
        operation = self._operation(call, "Failed to fetchResults.", is_long=True)
        try:
            page = operation.fetch(token)
            return _page_answer(call, page, row_format)
        except GatewayError as error:
            raise _failure(error, "Failed to fetchResults.", is_long=True) from error

    def deploy(self, call: Call) -> Any:
        """Start a script in a process of its own, which is what a cluster is in Flink's application mode."""
        doing = "Failed to deploy script to cluster."
        body: ScriptBody = _read_body(call, ScriptBody)
        session = self._session(call, doing, is_long=True)
        if (body.script is None) == (body.scriptUri is None):
            missing = ("java.lang.IllegalArgumentException", "Please specify script content or uri.")
            raise Failure(500, GatewayError(missing), is_long=True)
        options = _texts(body.executionConfig)
        engine = session.engine
        with _failing(doing):
            return {"clusterID": session.call(lambda: engine.deploy(body.script, body.scriptUri, options))}

    # --- materialized tables ------------------------------------------------------------------------------------------

    def refresh(self, call: Call) -> Any:
        """Submit the refresh of a materialized table. Its errors come with its result."""
        doing = "Failed to refresh MaterializedTable."
        body: RefreshBody = _read_body(call, RefreshBody)
        session = self._session(call, doing, is_long=True)
        request = TableRefresh(
            call.path["identifier"],
            body.isPeriodic,
            body.scheduleTime,
            body.staticPartitions or {},
            body.dynamicOptions or {},
            _texts(body.executionConfig),
        )
        with _failing(doing):
            return {"operationHandle": session.submit_refresh(request)}

    def create_workflow(self, call: Call) -> Any:
        """Let the embedded scheduler refresh a table."""
        body: WorkflowBody = _read_body(call, WorkflowBody)
        identifier, cron = body.materializedTableIdentifier, body.cronExpression
        if cron is None or identifier is None:
            raise _of_scheduler(f"{'cronExpression' if cron is None else 'materializedTableIdentifier'} cannot be null")
        options = _texts(body.initConfig) | _texts(body.executionConfig)
        with _scheduling():
            name, group = self._workflows().create(identifier, cron, options)
        return {"workflowName": name, "workflowGroup": group}

    def suspend_workflow(self, call: Call) -> Any:
        """Let a workflow run no more."""
        return self._change_workflow(call, lambda workflows, name: workflows.suspend(name))

    def resume_workflow(self, call: Call) -> Any:
        """Let a workflow run again."""
        return self._change_workflow(call, lambda workflows, name: workflows.resume(name))

    def delete_workflow(self, call: Call) -> Any:
        """Remove a workflow."""
        return self._change_workflow(call, lambda workflows, name: workflows.delete(name))

    def _change_workflow(self, call: Call, change: Callable[[Workflows, str], None]) -> Any:
        body: WorkflowBody = _read_body(call, WorkflowBody)
        if body.workflowName is None:
            raise _of_scheduler("Name cannot be null.")
        with _scheduling():
            change(self._workflows(), body.workflowName)
        return Empty()

    def _workflows(self) -> Workflows:
        if self._sessions.workflows is None:
            raise _of_scheduler("this gateway has no embedded scheduler")
        return self._sessions.workflows


def _of_scheduler(message: str) -> Failure:
    return Failure(500, GatewayError((_REST, message), (_SCHEDULER, message)))


@contextmanager
def _scheduling() -> Iterator[None]:
    """Answer errors as the embedded scheduler does."""
    try:
        yield
    except PenstockError as error:
        raise _of_scheduler(hide(str(error))) from error


def _failure(error: GatewayError, doing: str, is_long: bool = False) -> Failure:
    """Return the failure of a call about a session or an operation; its outermost cause is that of Flink's handler."""
    (gateway_class, _), *_ = api_error(doing).causes
    if not is_long:
        return Failure(500, error.within((_REST, doing), (gateway_class, doing)))
    if doing == "Failed to fetchResults.":
        return Failure(500, error.within((gateway_class, f"{gateway_class}: {doing}"), (gateway_class, doing)), True)
    return Failure(500, error.within((gateway_class, doing)), is_long=True)


def _handle(call: Call, name: str) -> str:
    try:
        return parse_handle(call.path[name], name)
    except WrongValueError as error:
        raise _bad_parameter("path", name, call.path[name]) from error


def _token(call: Call) -> int:
    text = call.path["token"]
    token = int(text) if _NUMBER.fullmatch(text) else 2**63
    if not -(2**63) <= token < 2**63:
        raise _bad_parameter("path", "token", text)
    return token


def _row_format(call: Call) -> RowFormat:
    text = call.query.get("rowFormat", RowFormat.JSON.value)
    try:
        return RowFormat(text)
    except ValueError as error:
        raise _bad_parameter("query", "rowFormat", text) from error


def _page_answer(call: Call, page: Page, row_format: RowFormat) -> Answer:
    """Return a page as Flink writes it. The rows are JSON already: numbers keep all their digits."""
    parts = [f'"resultType":"{page.kind}"']
    if page.result is not None:
        try:
            rows = _rows(page.result, page.rows, row_format)
        except WrongValueError as error:
            message = f"Internal server error. Could not map response to JSON. {error}"
            return Answer(500, encoded({"errors": [message]}))
        parts.append(f'"isQueryResult":{"true" if page.result.is_query else "false"}')
        parts += [] if page.result.job_id is None else [f'"jobID":"{page.result.job_id}"']
        parts.append(f'"resultKind":"SUCCESS{"_WITH_CONTENT" if page.result.has_content else ""}"')
        columns = page.result.columns
        parts.append(f'"results":{{"columns":{columns},"rowFormat":"{row_format.value}","data":[{rows}]}}')
    if page.next_token is not None:
        version = call.path.get("version", NEWEST)
        path = f"/{version}/sessions/{call.path['session_handle']}/operations/{call.path['operation_handle']}"
        parts.append(f'"nextResultUri":"{path}/result/{page.next_token}?rowFormat={row_format.value}"')
    return Answer(200, f"{{{','.join(parts)}}}".encode("utf-8", "replace"), has_rows=True)


def _rows(result: Result, rows: Sequence[tuple[str, Sequence[Any]]], row_format: RowFormat) -> str:
    render = result.render
    if not rows:
        render(row_format, ())  # a format that cannot have the columns is refused with the first page
    return ",".join(f'{{"kind":"{_KINDS[kind]}","fields":[{render(row_format, values)}]}}' for kind, values in rows)


_Handler = Callable[[GatewayRoutes], Callable[[Call], Any]]
_S: Final = "/sessions/:session_handle"
_O: Final = f"{_S}/operations/:operation_handle"
_W: Final = "/workflow/embedded-scheduler"
_ALL: Final = VERSIONS
#: method, path, handler, access, body, versions
TABLE: Final[tuple[tuple[str, str, _Handler, Access, Any, tuple[str, ...]], ...]] = (
    ("GET", "/info", lambda routes: routes.info, "open", None, _ALL),
    ("GET", "/api_versions", lambda routes: routes.versions, "open", None, _ALL),
    ("POST", "/sessions", lambda routes: routes.open_session, "changes", SessionBody, _ALL),
    ("GET", _S, lambda routes: routes.get_session, "reveals", None, _ALL),
    ("DELETE", _S, lambda routes: routes.close_session, "changes", None, _ALL),
    ("POST", f"{_S}/heartbeat", lambda routes: routes.heartbeat, "changes", None, _ALL),
    ("POST", f"{_S}/configure-session", lambda routes: routes.configure, "changes", StatementBody, _ALL[1:]),
    ("GET", f"{_S}/complete-statement", lambda routes: routes.complete, "reveals", CompletionBody, _ALL[1:]),
    ("POST", f"{_S}/statements", lambda routes: routes.submit, "changes", StatementBody, _ALL),
    ("GET", f"{_O}/status", lambda routes: routes.status, "reveals", None, _ALL),
    ("GET", f"{_O}/result/:token", lambda routes: routes.fetch, "reveals", None, _ALL),
    ("POST", f"{_O}/cancel", lambda routes: routes.cancel, "changes", None, _ALL),
    ("DELETE", f"{_O}/close", lambda routes: routes.close, "changes", None, _ALL),
    (
        *("POST", f"{_S}/materialized-tables/:identifier/refresh"),
        *(lambda routes: routes.refresh, "changes", RefreshBody, ("v3",)),
    ),
    ("POST", f"{_W}/create", lambda routes: routes.create_workflow, "changes", WorkflowBody, ("v3",)),
    ("POST", f"{_W}/suspend", lambda routes: routes.suspend_workflow, "changes", WorkflowBody, ("v3",)),
    ("POST", f"{_W}/resume", lambda routes: routes.resume_workflow, "changes", WorkflowBody, ("v3",)),
    ("DELETE", f"{_W}/delete", lambda routes: routes.delete_workflow, "changes", WorkflowBody, ("v3",)),
    ("POST", f"{_S}/scripts", lambda routes: routes.deploy, "changes", ScriptBody, ("v4",)),
)


class _GatewayDoor(Door):
    """The checks of the REST API, with the message of the gateway for unknown paths."""

    unknown_path = "Not found: {}"


def _guarded(handler: Callable[[Call], Any], version: str) -> Callable[[Call], Any]:
    """Return the handler for a version. A failure becomes its answer."""

    def handle(call: Call) -> Any:
        try:
            return handler(_of_version(call, version))
        except Failure as failure:
            return failure.answer

    return handle


def _of_version(call: Call, version: str) -> Call:
    return Call(call.context, {**call.path, "version": version}, call.query, call.body, call.content_type, call.headers)


def gateway_application(sessions: Sessions) -> Callable[[RestContext, RestSettings], Starlette]:
    """Return what builds the application over these sessions."""
    routes = GatewayRoutes(sessions)

    def build(context: RestContext, settings: RestSettings) -> Starlette:
        context.settings = settings
        door = _GatewayDoor(context, settings)
        served = [
            StarletteRoute(prefix + starlette_path(path), door.endpoint(route), methods=[method])
            for method, path, handler, access, body, versions in TABLE
            for prefix, version in [("", versions[-1]), *((f"/{version}", version) for version in versions)]
            for route in [Route(method, path, _guarded(handler(routes), version), "", Any, 200, access, (), body)]
        ]
        return Starlette(routes=served, exception_handlers={HTTPException: door.refuse_unrouted})

    return build
