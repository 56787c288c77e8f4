"""The cluster over REST: the process as a whole, the job manager, the workers, and logins of browsers.

**The process as a whole**: its overview, the settings of a web page, and the shutdown.

**Logs and stacks** of a process have the shapes of the API.

**The job manager** is this process, with its configuration, environment, logs and stacks.

**Workers**: the list, details, logs, output and stacks.

**Login and logout**: a form takes a token, and a cookie stands for it from then on. URLs are relative, for proxies that
serve the REST API under their own path.
"""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import parse_qs

import msgspec

from penstock import __version__
from penstock.base.errors import OperationError
from penstock.base.job import JobStatus
from penstock.base.secrets import shown
from penstock.server.dispatcher import DispatchedJob, WorkerInsight
from penstock.server.metrics.metric_store import DRIVER_ID
from penstock.server.metrics.scopes import NO_CHANNELS, channel_memory
from penstock.server.rest.calls import context
from penstock.server.rest.calls.routing import HTML_TYPE, Answer, Call, Empty, Html, Route, Text, not_found
from penstock.server.rest.messages import vertices

#: The Flink version whose API this is; dashboards and clients compare it.
FLINK_VERSION = "2.3.0"


class Overview(msgspec.Struct, frozen=True, rename="kebab"):
    """Counts of workers, slots and jobs."""

    taskmanagers: int
    slots_total: int
    slots_available: int
    jobs_running: int
    jobs_finished: int
    jobs_cancelled: int
    jobs_failed: int
    flink_version: str
    flink_commit: str


class Features(msgspec.Struct, frozen=True, rename="kebab"):
    """The features that a web page offers."""

    web_submit: bool = False
    web_cancel: bool = True
    web_rescale: bool = True
    web_history: bool = False


class DashboardConfig(msgspec.Struct, frozen=True, rename="kebab"):
    """The settings of a web page."""

    refresh_interval: int
    timezone_name: str
    timezone_offset: int
    flink_version: str
    flink_revision: str
    features: Features


def overview(call: Call) -> Overview:
    """Counts."""
    views = [view for _, view in call.context.views()]
    workers = vertices.known_workers(views)
    statuses = [view.status for view in views]
    return Overview(
        taskmanagers=len(workers),
        slots_total=len(workers),
        slots_available=sum(not worker.tasks for worker in workers),
        jobs_running=sum(not status.is_terminal_state() for status in statuses),
        jobs_finished=statuses.count(JobStatus.FINISHED),
        jobs_cancelled=statuses.count(JobStatus.CANCELED),
        jobs_failed=statuses.count(JobStatus.FAILED),
        flink_version=FLINK_VERSION,
        flink_commit=f"penstock-{__version__}",
    )


def config(call: Call) -> DashboardConfig:
    """Return the settings that a web page requests first."""
    local = time.localtime()
    return DashboardConfig(
        refresh_interval=3000,
        timezone_name=local.tm_zone,
        timezone_offset=local.tm_gmtoff * 1000,
        flink_version=FLINK_VERSION,
        flink_revision=f"penstock-{__version__}",
        features=Features(web_submit=call.context.programs is not None),
    )


def shut_down(call: Call) -> Empty:
    """Cancel all jobs and end the server."""
    call.context.shut_down()
    return Empty()


OVERVIEW_ROUTES = [
    Route("GET", "/overview", overview, "Counts of workers, slots and jobs.", Overview),
    Route("GET", "/config", config, "What a page needs to know first.", DashboardConfig),
    Route("DELETE", "/cluster", shut_down, "Cancels all jobs and ends the server.", Empty, access="changes"),
]


class LogFileInfo(msgspec.Struct, frozen=True):
    """A log file: its size in bytes, and its time in ms since the epoch."""

    name: str
    size: int
    mtime: int


class LogFiles(msgspec.Struct, frozen=True):
    """The log files of a process."""

    logs: list[LogFileInfo]


class ThreadInfo(msgspec.Struct, frozen=True, rename="camel"):
    """A thread and its stack trace, as Python formats it."""

    thread_name: str
    stringified_thread_info: str


class ThreadDump(msgspec.Struct, frozen=True, rename="camel"):
    """The threads of a process."""

    thread_infos: list[ThreadInfo]


def log_files(files: Iterable[tuple[str, int, int]]) -> LogFiles:
    """Build the list of a process's log files."""
    return LogFiles([LogFileInfo(*file) for file in files])


def build_thread_dump(stacks: Iterable[tuple[str, str]]) -> ThreadDump:
    """Build the thread dump of a process."""
    return ThreadDump([ThreadInfo(*stack) for stack in stacks])


#: JVM memory sizes that Flink's web UI reads from the configuration; a Python process has just one memory area.
_MEMORY: Final = {
    "jobmanager.memory.off-heap.size": "0 bytes",
    "jobmanager.memory.jvm-metaspace.size": "0 bytes",
    "jobmanager.memory.jvm-overhead.min": "0 bytes",
    "jobmanager.memory.jvm-overhead.max": "0 bytes",
}


class Entry(msgspec.Struct, frozen=True):
    """A configuration option and its value."""

    key: str
    value: str


class Interpreter(msgspec.Struct, frozen=True):
    """The Python interpreter, in place of a JVM."""

    version: str
    arch: str
    options: list[str]


class Environment(msgspec.Struct, frozen=True):
    """The interpreter and its import path."""

    jvm: Interpreter
    classpath: list[str]


class Url(msgspec.Struct, frozen=True):
    """The URL of a log."""

    url: str


def entries(values: Mapping[str, str]) -> list[Entry]:
    """Return options without secrets, and the memory sizes that Flink's web UI reads."""
    heap = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    known = {"jobmanager.memory.heap.size": f"{heap} bytes", **_MEMORY, **shown(values)}
    return [Entry(key, known[key]) for key in sorted(known)]


def jobmanager_config(call: Call) -> list[Entry]:
    """Return the configuration of the job that requested the server."""
    return entries(call.context.configuration.to_dict())


def job_config(call: Call) -> list[Entry]:
    """Return a job's configuration; as in Flink, an unknown job has no options."""
    job = call.context.dispatcher.job(call.path.get("jobid") or call.path["applicationid"])
    return entries({} if job is None else job.configuration.to_dict())


def environment(call: Call) -> Environment:
    """Return the interpreter without the program's own arguments, which may be secret."""
    version = f"{platform.python_implementation()} - {platform.python_version()}"
    options = [f"-W {option}" for option in sys.warnoptions]
    options += [f"-X {name}" if value is True else f"-X {name}={value}" for name, value in sys._xoptions.items()]
    return Environment(Interpreter(version, platform.machine(), options), list(sys.path))


def logs(call: Call) -> LogFiles:
    """List the log files."""
    return log_files(call.context.own.logs())


def log(call: Call) -> Text:
    """Return the main log, or the one that the path names; a job's log if the query names a job."""
    if (job := job_of_query(call)) is not None:
        return text_of_job(call, job, is_output=False)
    if (name := call.path.get("filename", context.LOG_NAME)) != context.LOG_NAME:
        raise not_found(f"This file does not exist in the log dir: {name[:100]}")
    return Text(call.context.own.log())


def stdout(call: Call) -> Text:
    """Return the output of this process, or of a job's process if the query names a job."""
    if (job := job_of_query(call)) is not None:
        return text_of_job(call, job, is_output=True)
    return Text(call.context.own.stdout())


def job_of_query(call: Call) -> DispatchedJob | None:
    """Return the job that the query names, or None; 404 if it is unknown. Flink's API lacks this parameter."""
    if (job_id := call.query.get("job")) is None:
        return None
    if (job := call.context.dispatcher.job(job_id.lower())) is None:
        raise not_found(f"Job {job_id[:100]} not found")
    return job


def text_of_job(call: Call, job: DispatchedJob, is_output: bool) -> Text:
    """Return the log or the output of a job's process."""
    insight = call.context.insight
    try:
        data = insight.stdout(job, None) if is_output else insight.log(job, None)
    except OperationError as error:
        raise not_found(str(error)) from error
    return Text(data.decode("utf-8", "replace"))


def thread_dump(call: Call) -> ThreadDump:
    """Return the stacks of the threads."""
    return build_thread_dump(call.context.own.thread_dump())


def log_url(call: Call) -> Url:
    """Return the URL of a job's or a worker's log on this server. As in Flink, ids are not checked."""
    worker, job = call.path.get("taskmanagerid"), call.context.dispatcher.job(call.path["jobid"])
    of_job = "" if job is None else f"?job={job.job_id}"
    return Url(f"/jobmanager/log{of_job}" if worker is None else f"/taskmanagers/{worker}/log")


def no_profiler(call: Call) -> Any:
    """Answer 404, as Flink does with profiling off: async-profiler is for JVMs."""
    raise not_found("Profiling is off: rest.profiling.enabled is not supported, flame graphs show where time goes.")


_MANAGER = "/jobmanager"
_OF_JOB = "/jobs/:jobid"
_WORKER = "/taskmanagers/:taskmanagerid"
JOBMANAGER_ROUTES = [
    Route("GET", f"{_MANAGER}/config", jobmanager_config, "The configuration.", list[Entry], access="reveals"),
    Route("GET", f"{_MANAGER}/environment", environment, "The interpreter.", Environment, access="reveals"),
    Route("GET", f"{_MANAGER}/logs", logs, "The files of logs.", LogFiles, access="reveals"),
    Route("GET", f"{_MANAGER}/logs/:filename", log, "One of the logs.", Text, access="reveals"),
    Route("GET", f"{_MANAGER}/log", log, "The main log.", Text, access="reveals"),
    Route("GET", f"{_MANAGER}/stdout", stdout, "What the process has printed.", Text, access="reveals"),
    Route("GET", f"{_MANAGER}/thread-dump", thread_dump, "Where the threads are.", ThreadDump, access="reveals"),
    Route("GET", f"{_OF_JOB}/jobmanager/config", job_config, "A job's options.", list[Entry], access="reveals"),
    Route(
        "GET",
        "/applications/:applicationid/jobmanager/config",
        job_config,
        "An application's options.",
        list[Entry],
        access="reveals",
    ),
    Route(
        "GET",
        f"{_OF_JOB}/jobmanager/environment",
        environment,
        "The interpreter of a job.",
        Environment,
        access="reveals",
    ),
    Route("GET", f"{_OF_JOB}/jobmanager/log-url", log_url, "Where the log of a job is.", Url, takes_any_id=True),
    Route(
        "GET",
        f"{_OF_JOB}/taskmanagers/:taskmanagerid/log-url",
        log_url,
        "Where the log of a worker is.",
        Url,
        takes_any_id=True,
    ),
    Route("GET", f"{_MANAGER}/profiler", no_profiler, "404: there is no profiler.", Any, access="reveals"),
    Route("POST", f"{_MANAGER}/profiler", no_profiler, "404: there is no profiler.", Any, access="changes"),
    Route("GET", f"{_MANAGER}/profiler/:filename", no_profiler, "404: there is no profiler.", Any, access="reveals"),
    Route("GET", f"{_WORKER}/profiler", no_profiler, "404: there is no profiler.", Any, access="reveals"),
    Route("POST", f"{_WORKER}/profiler", no_profiler, "404: there is no profiler.", Any, access="changes"),
    Route("GET", f"{_WORKER}/profiler/:filename", no_profiler, "404: there is no profiler.", Any, access="reveals"),
]


T = TypeVar("T")


def workers(call: Call) -> list[vertices.KnownWorker]:
    """Return the workers of all running jobs."""
    return vertices.known_workers(view for _, view in call.context.views())


def worker(call: Call) -> vertices.KnownWorker | None:
    """Return the worker that the path names; None for the driver, 404 if it is unknown."""
    worker_id = call.path["taskmanagerid"]
    if worker_id == DRIVER_ID:
        return None
    for known in workers(call):
        if known.id == worker_id:
            return known
    raise not_found(f"No TaskManager with id {worker_id[:100]!r} was found")


def taskmanagers(call: Call) -> vertices.TaskManagers:
    """List all workers, or just the driver without workers."""
    entries = [
        vertices.in_list(vertices.task_manager(known, _engine_page(call, known, None))) for known in workers(call)
    ]
    return vertices.TaskManagers(entries or [vertices.in_list(vertices.driver(int(time.time() * 1000)))])


def details(call: Call) -> vertices.TaskManagerDetails:
    """Return the details of a worker."""
    known_worker = worker(call)
    if known_worker is None:
        return vertices.driver(int(time.time() * 1000))
    page = _engine_page(call, known_worker, known_worker.worker.worker_id) or _engine_page(call, known_worker, None)
    return vertices.task_manager(
        known_worker, page, channel_memory(known_worker.view).get(known_worker.worker.worker_id, NO_CHANNELS)
    )


def _engine_page(call: Call, known: vertices.KnownWorker, worker_id: str | None) -> str | None:
    """Return the URL of Spark's page for a worker, or of Spark's own; the list asks only for the latter."""
    job = call.context.dispatcher.job(known.view.job_id)
    return None if job is None else job.handle.engine_page(worker_id)


def worker_logs(call: Call) -> LogFiles:
    """List a worker's log files."""
    return log_files(_asked(call, lambda insight, *of: insight.logs(*of), lambda: call.context.own.logs()))


def worker_log(call: Call) -> Text:
    """Return a worker's main log, or the one that the path names."""
    name = call.path.get("filename", "")

    def own() -> bytes:
        if name not in ("", context.LOG_NAME):
            raise not_found(f"This file does not exist in the log dir: {name[:100]}")
        return call.context.own.log().encode()

    return Text(_text(_asked(call, lambda insight, *of: insight.log(*of, name), own)))


def worker_stdout(call: Call) -> Text:
    """Return a worker's output."""
    own = call.context.own.stdout().encode()
    return Text(_text(_asked(call, lambda insight, *of: insight.stdout(*of), lambda: own)))


def worker_thread_dump(call: Call) -> ThreadDump:
    """Return the stacks of a worker's threads."""
    own = call.context.own
    return build_thread_dump(_asked(call, lambda insight, *of: insight.thread_dump(*of), own.thread_dump))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace") or "there is nothing in it yet\n"


def _asked(call: Call, ask: Callable[[WorkerInsight, DispatchedJob, str], T], of_driver: Callable[[], T]) -> T:
    """Query a worker. If a worker in this process does not answer, use the process's own data."""
    known_worker = worker(call)
    if known_worker is None:
        return of_driver()
    job = call.context.dispatcher.job(known_worker.view.job_id)
    if job is None:
        raise not_found(f"Job {known_worker.view.job_id} not found")
    try:
        return ask(call.context.insight, job, known_worker.worker.worker_id)
    except OperationError as error:
        if known_worker.worker.process_id == os.getpid():
            return of_driver()
        raise not_found(str(error)) from error


TASKMANAGERS_ROUTES = [
    Route("GET", "/taskmanagers", taskmanagers, "All workers.", vertices.TaskManagers),
    Route("GET", _WORKER, details, "A worker.", vertices.TaskManagerDetails),
    Route("GET", f"{_WORKER}/logs", worker_logs, "Its files of logs.", LogFiles, access="reveals"),
    Route("GET", f"{_WORKER}/logs/:filename", worker_log, "One of its logs.", Text, access="reveals"),
    Route("GET", f"{_WORKER}/log", worker_log, "Its main log.", Text, access="reveals"),
    Route("GET", f"{_WORKER}/stdout", worker_stdout, "What it has printed.", Text, access="reveals"),
    Route("GET", f"{_WORKER}/thread-dump", worker_thread_dump, "Where its threads are.", ThreadDump, access="reveals"),
]


class LoginForm(msgspec.Struct, frozen=True):
    """The login form."""

    token: str


#: The maximum length of a token.
TOKEN_CHARS_MAX: Final = 1_000
_STYLE: Final = (
    "body{font:16px system-ui,sans-serif;max-width:26rem;margin:15vh auto;padding:0 1rem}"
    "input,button{font:inherit;padding:.5rem;width:100%;box-sizing:border-box;margin:.5rem 0}"
)
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_FORM: Final = (
    '<form method="post" action="login"><label>Token of the REST API'
    '<input name="token" type="password" autocomplete="current-password" autofocus required></label>'
    "<button>Log in</button></form>"
)
_OUT: Final = '<form method="post" action="logout"><button>Log out</button></form><p><a href="./">To the page</a></p>'


def form(call: Call) -> Answer:
    """Return the login form, or the logout form if the browser is logged in."""
    if not _asks_for_token(call):
        return _page('<p>This server asks for no token.</p><p><a href="./">To the page</a></p>')
    role = call.context.logins.get_role(_cookie(call))
    return _page(_FORM) if role == "nobody" else _page(f"<p>You are logged in as {role}.</p>{_OUT}")


def log_in(call: Call) -> Answer:
    """Check a token and set the cookie that stands for it."""
    if not _asks_for_token(call):
        return _redirect("./")
    role = context.role_of_token(call.context.settings, _token(call.body))
    if role == "nobody":
        return _page(f"<p>This token is wrong.</p>{_FORM}", 401)
    call.context.logins.end(_cookie(call))
    return _redirect("./", _set_cookie(call, call.context.logins.begin(role), context.LOGIN_SECONDS), role)


def log_out(call: Call) -> Answer:
    """End the login."""
    call.context.logins.end(_cookie(call))
    return _redirect("login", _set_cookie(call, "", 0))


def _asks_for_token(call: Call) -> bool:
    return call.context.settings.token is not None


def _token(body: bytes) -> str:
    """Return the token in the body of a form; empty if missing."""
    fields = parse_qs(body[: 4 * TOKEN_CHARS_MAX].decode("utf-8", "replace"))
    return fields.get("token", [""])[0].strip()


def _cookie(call: Call) -> str:
    return context.read_cookie(call.headers, call.context.port)


def _set_cookie(call: Call, value: str, seconds: int) -> str:
    is_encrypted = call.context.settings.certificate is not None
    return context.cookie_header(context.cookie_name(call.context.port), value, seconds, is_encrypted=is_encrypted)


def _redirect(path: str, cookie: str | None = None, role: context.Role | None = None) -> Answer:
    headers = {"location": path} | ({} if cookie is None else {"set-cookie": cookie})
    return Answer(303, b"", HTML_TYPE, headers, role)


def _page(content: str, code: int = 200) -> Answer:
    text = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Penstock: log in</title>'
        '<meta name="viewport" content="width=device-width">'
        f"<style>{_STYLE}</style></head><body><h1>Penstock</h1>{content}</body></html>"
    )
    return Answer(code, text.encode(), HTML_TYPE, {"content-security-policy": _POLICY})


LOGIN_ROUTES = [
    Route("GET", "/login", form, "The form to log a browser in.", Html, access="login"),
    Route(
        "POST",
        "/login",
        log_in,
        "Takes a token, and sets a cookie for it.",
        Html,
        303,
        "login",
        body=LoginForm,
    ),
    Route("POST", "/logout", log_out, "Ends a log-in.", Html, 303, "login"),
]


ROUTES = (*OVERVIEW_ROUTES, *JOBMANAGER_ROUTES, *TASKMANAGERS_ROUTES, *LOGIN_ROUTES)
