"""The job manager: this process, with its configuration, environment, logs and stacks."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from penstock.base.errors import OperationError
from penstock.base.secrets import shown
from penstock.operations.dispatcher import DispatchedJob
from penstock.operations.rest.calls.answers import Text
from penstock.operations.rest.calls.errors import not_found
from penstock.operations.rest.calls.own_process import LOG_NAME
from penstock.operations.rest.calls.routing import Call, Route
from penstock.operations.rest.handlers.process import LogFiles, ThreadDump, build_thread_dump, log_files

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


def config(call: Call) -> list[Entry]:
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
    if (name := call.path.get("filename", LOG_NAME)) != LOG_NAME:
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
ROUTES = [
    Route("GET", f"{_MANAGER}/config", config, "The configuration.", list[Entry], access="reveals"),
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
