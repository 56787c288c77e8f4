"""Archives of ended jobs, in the format of Flink's history server (`jobmanager.archive.fs.dir`).

The process of a job writes one file when the job has finished, failed or was cancelled. The file has the job's id as
its name, and the answers of the REST API about the job as its content:

    {"archive": [{"path": "/jobs/overview", "json": "{...}"}, {"path": "/jobs/<id>", "json": "{...}"}, ...]}

`render_archive` makes the answers with the handlers of the REST API, so they have the shapes of the live server, and
secrets are hidden in them as there. Answers that only a live process can give are left out: metrics, logs, flame
graphs, back-pressure. An archive is bounded: general answers come first, and the most detailed ones are left out where
there are too many subtasks.

`archive_at_end` writes in a thread of its own after the job's outcome is published, so it neither delays nor fails a
job. The interpreter waits for the thread at its end, for a bounded time. The file appears in one step: the name of an
archive never stands for a part of it, even if the process is killed.

`Directory` lists, reads and deletes archives, ours and Flink's. That of a job is a file that has the job's id as its
name. Those of Flink's applications (2.3) are `<cluster>/applications/<application>/application-summary`, and
`jobs/<job>` beside it. Everything else in a directory is ignored, so checkpoints may be in the same one. `retain`
decides which archives are deleted.

Source: Flink's `FsJsonArchivist`, `ArchivePathUtils` and `OnlyExecutionGraphJsonArchivist`.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import posixpath
import re
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError
from penstock.base.secrets import hide, hide_json
from penstock.base.server_options import ARCHIVE_DIR, HISTORY_DIRS
from penstock.codecs.file_systems import url_to_fs
from penstock.runtime.job.view import JobView
from penstock.server.dispatcher import DispatchedJob, Dispatcher
from penstock.server.rest.application import ROUTES
from penstock.server.rest.calls.context import RestContext
from penstock.server.rest.calls.routing import Call, RestError, Route, build_answer
from penstock.server.rest.messages.checkpoints import rescales
from penstock.storage.files import absolute_url, shown, write_named

_log = logging.getLogger("penstock.history")

#: The largest sum of paths and answers in an archive.
ARCHIVE_BYTES_MAX: Final = 4 << 20
#: How many answers are rendered and left out before the rest is not rendered.
LEFT_OUT_MAX: Final = 100
#: How long (s) the end of a program waits for an archive.
ARCHIVE_SECONDS: Final = 30.0
#: How long (s) an archive waits until all observers of the job have heard of its end.
OUTCOME_SECONDS: Final = 5.0
#: A larger file is no archive: Flink's are bounded by the graph, ours by `ARCHIVE_BYTES_MAX`.
FILE_BYTES_MAX: Final = 256 << 20

OVERVIEW: Final = "/jobs/overview"
#: Fields of a job in the overview that Flink does not have. The job's details have them too.
OWN_FIELDS: Final = ("restarts", "last-failure")
APPLICATIONS_OVERVIEW: Final = "/applications/overview"
#: Parameters of paths whose values a job's view has.
_PARAMETERS: Final = frozenset({"jobid", "vertexid", "subtaskindex", "attempt", "checkpointid", "rescaleuuid"})
#: Last parts of paths that need the job's process.
_LIVE: Final = frozenset(
    {"metrics", "jm-operator-metrics", "flamegraph", "backpressure", "log-url", "resource-requirements"}
)


Kind = Literal["job", "application"]

_ID: Final = re.compile("[0-9a-f]{32}")
_APPLICATIONS: Final = "applications"
_SUMMARY: Final = "application-summary"
_JOBS: Final = "jobs"


class ArchivedJson(msgspec.Struct, frozen=True):
    """An answer of the REST API, as text, and the path that it answers."""

    path: str
    json: str


class Archive(msgspec.Struct, frozen=True):
    r"""The content of an archive.

    Examples:
        >>> from penstock.server.history.archive import Archive, ArchivedJson
        >>> import msgspec
        >>> print(msgspec.json.encode(Archive([ArchivedJson("/jobs/overview", '{"jobs":[]}')])).decode())
        {"archive":[{"path":"/jobs/overview","json":"{\"jobs\":[]}"}]}
    """

    archive: list[ArchivedJson]


def is_archived(route: Route) -> bool:
    """Return whether archives have the answers of a route."""
    if route.method != "GET" or route.code != 200 or route.path.rpartition("/")[2] in _LIVE:
        return False
    return route.path == OVERVIEW or (
        route.path.startswith("/jobs/:jobid") and _PARAMETERS.issuperset(route.parameters)
    )


#: The routes whose answers archives have, most general ones first.
ARCHIVED_ROUTES: Final[Sequence[Route]] = sorted(filter(is_archived, ROUTES), key=lambda route: len(route.parameters))


def check_directory(configuration: Configuration) -> None:
    """Check the option before a job begins.

    Raises:
        ConfigurationError: if archives cannot be written into such a directory, or only this process could read them.
    """
    directory = configuration.read(ARCHIVE_DIR)
    if directory is not None:
        open_directory(directory, ARCHIVE_DIR.key())


def open_directory(directory: str, key: str) -> tuple[Any, str]:
    """Return the file system of a directory of archives, and the path in it; `key` is its option.

    Raises:
        ConfigurationError: if there is no such file system, its package is missing, or only this process sees it.
    """
    try:
        url = absolute_url(directory)
        fs, path = url_to_fs(url)
    except (ConfigurationError, ValueError, ImportError) as error:
        raise ConfigurationError(f"{key}: {hide(str(error))}") from error
    if url.startswith("memory://"):
        raise ConfigurationError(
            f"{key}: {directory} is in the memory of this process, and gone with it; name a directory of a disk or a "
            "store, such as file:///var/penstock/archive or s3://bucket/archive"
        )
    return fs, str(path)


def render_archive(job: DispatchedJob, bytes_max: int = ARCHIVE_BYTES_MAX) -> Archive:
    """Return the answers of the REST API about an ended job.

    Args:
        job: the job.
        bytes_max: the largest sum of the sizes of paths and answers; a log line says how many do not fit.
    """
    dispatcher = Dispatcher()
    dispatcher.add(job)
    context = RestContext(dispatcher, job.configuration)
    view = context.view(job)
    entries: list[ArchivedJson] = []
    left_out, size = 0, 0
    for route in ARCHIVED_ROUTES:
        for path in _expand(route, view):
            if left_out > LEFT_OUT_MAX:
                break
            entry = _render(route, context, path)
            if entry is None:
                continue
            if size + len(entry.path) + len(entry.json) > bytes_max:
                left_out += 1
                continue
            size += len(entry.path) + len(entry.json)
            entries.append(entry)
    if left_out:
        more = f"the first {left_out} of more" if left_out > LEFT_OUT_MAX else str(left_out)
        _log.warning(
            "the archive of job %s is limited to %d bytes: %s of its answers, the most detailed ones, are left out",
            job.job_id,
            bytes_max,
            more,
        )
    return Archive(entries)


def _expand(route: Route, view: JobView) -> Iterator[dict[str, str]]:
    """Yield the parameters of each path of a route."""
    names = route.parameters
    for outer in _expand_outer(names, view):
        if "vertexid" not in names:
            yield outer
            continue
        for vertex in view.vertices:
            path = {**outer, "vertexid": vertex.vertex_id}
            if "subtaskindex" not in names:
                yield path
                continue
            for subtask in vertex.subtasks:
                yield {**path, "subtaskindex": str(subtask.subtask), "attempt": str(subtask.attempt)}


def _expand_outer(names: Sequence[str], view: JobView) -> Iterator[dict[str, str]]:
    path = {"jobid": view.job_id}
    if "checkpointid" in names:
        known = view.checkpoints
        latest = (known.last, known.last_savepoint, known.last_failed)
        records = (*view.in_progress, *known.history, *(record for record in latest if record is not None))
        for checkpoint_id in sorted({record.checkpoint_id for record in records}, reverse=True):
            yield {**path, "checkpointid": str(checkpoint_id)}
    elif "rescaleuuid" in names:
        for rescale in rescales(view):
            yield {**path, "rescaleuuid": rescale.rescale_uuid}
    else:
        yield path


def _render(route: Route, context: RestContext, path: dict[str, str]) -> ArchivedJson | None:
    """Return an answer; None if there is none for such a job."""
    where = "/".join(path[part[1:]] if part.startswith(":") else part for part in route.path.split("/"))
    try:
        answer = build_answer(route.code, route.handler(Call(context, path)))
    except RestError:
        return None  # as the live server says, such as that a batch job is not rescaled
    except Exception:  # noqa: BLE001 - an answer that fails costs no others
        _log.exception("GET %s fails, and is left out of the archive", where)
        return None
    body = _without_own_fields(answer.body) if where == OVERVIEW else answer.body
    return ArchivedJson(where, hide_json(body.decode()))


def _without_own_fields(overview: bytes) -> bytes:
    """Return an overview with Flink's fields alone: its history server shows no job that has others."""
    jobs = msgspec.json.decode(overview)["jobs"]
    return msgspec.json.encode({"jobs": [{k: v for k, v in job.items() if k not in OWN_FIELDS} for job in jobs]})


def write_archive(job: DispatchedJob, directory: str) -> None:
    """Write the archive of an ended job, replacing an earlier one of the same job.

    Raises:
        OSError: if the file system refuses.
        ConfigurationError: see `open_directory`.
    """
    fs, path = open_directory(directory, ARCHIVE_DIR.key())
    write_named(fs, path, job.job_id, msgspec.json.encode(render_archive(job)))


#: By job, an event that is set once the job is archived, or cannot be.
_awaited: Final[dict[DispatchedJob, threading.Event]] = {}


def archive_at_end(job: DispatchedJob, directory: str) -> None:
    """Write the archive of a job once it has ended for good; log an error if that fails."""
    url = absolute_url(directory)
    is_over = _awaited[job] = threading.Event()

    def archive() -> None:
        try:
            _archive_in_time(job, url)
        finally:
            _awaited.pop(job, None)
            is_over.set()

    def on_end(_: Future[Any]) -> None:
        try:
            threading.Thread(target=archive, name="penstock-archive", daemon=True).start()
        except RuntimeError:  # the interpreter ends already, and starts no more threads
            _archive(job, url)
            is_over.set()

    job.handle.get_job_execution_result().add_done_callback(on_end)


@atexit.register
def _await_archives() -> None:
    """Wait for the archives of jobs that have ended: a program may end with its job, before the callback of its end."""
    for job, is_over in list(_awaited.items()):
        if job.handle.get_job_execution_result().done():
            is_over.wait(ARCHIVE_SECONDS)


def _archive_in_time(job: DispatchedJob, directory: str) -> None:
    """Archive a job, and do not wait for a store that hangs."""
    writer = threading.Thread(target=_archive, args=(job, directory), name="penstock-archive-writer", daemon=True)
    writer.start()
    writer.join(ARCHIVE_SECONDS)
    if writer.is_alive():
        _log_failure(job, directory, f"it has not answered for {ARCHIVE_SECONDS:.0f} s")


def _archive(job: DispatchedJob, directory: str) -> None:
    try:
        # The outcome that observers wait for is published after this callback, if they registered later.
        wait([job.handle.get_job_execution_result()], OUTCOME_SECONDS)
        if not job.handle.status().is_globally_terminal_state():
            return  # another driver goes on with the job, and archives it
        write_archive(job, directory)
    except Exception as error:  # noqa: BLE001 - the job has ended all the same
        _log_failure(job, directory, f"{type(error).__name__}: {error}")
    else:
        _log.info("job %s is archived in %s", job.job_id, hide(directory))


def _log_failure(job: DispatchedJob, directory: str, reason: str) -> None:
    _log.error(
        "job %s is not archived in %s (%s), and will be missing in the history; its outcome is not affected: %s. Check "
        "that this process may write there, or unset the option",
        job.job_id,
        hide(directory),
        ARCHIVE_DIR.key(),
        hide(reason),
    )


@dataclass(frozen=True)
class ArchiveFile:
    """A file of an archive.

    Attributes:
        path: where it is in its file system.
        size: its size in bytes; None if the file system does not say.
        modified_ms: when it was written (ms since the epoch); 0 if the file system does not say.
    """

    path: str
    size: int | None
    modified_ms: int


@dataclass(frozen=True)
class Listed:
    """An archive in a directory: that of a job, or of an application with its jobs.

    Attributes:
        kind: whether it is of a job or of an application.
        archive_id: the id of the job or the application.
        files: its files by the id of the job or application in them.
    """

    kind: Kind
    archive_id: str
    files: Mapping[str, ArchiveFile]

    @property
    def modified_ms(self) -> int:
        """When its last file was written (ms since the epoch)."""
        return max(file.modified_ms for file in self.files.values())


@dataclass(frozen=True)
class Retention:
    """Which archives are kept.

    Attributes:
        jobs_max: how many of jobs; -1 for all.
        applications_max: how many of applications; -1 for all.
        age_ms_max: up to which age; None for any.
    """

    jobs_max: int = -1
    applications_max: int = -1
    age_ms_max: int | None = None


def retain(listed: Iterable[Listed], retention: Retention, now_ms: int) -> tuple[list[Listed], list[Listed]]:
    """Divide the archives of a directory: the ones to keep, newest first, and the ones to delete.

    Examples:
        >>> from penstock.server.history.archive import ArchiveFile, Listed, Retention, retain
        >>> jobs = [Listed("job", str(n) * 32, {str(n) * 32: ArchiveFile("", 1, 1000 * n)}) for n in (1, 2, 3)]
        >>> kept, deleted = retain(jobs, Retention(jobs_max=1), now_ms=4000)
        >>> [archive.archive_id[0] for archive in kept], [archive.archive_id[0] for archive in deleted]
        (['3'], ['2', '1'])
    """
    kept: list[Listed] = []
    deleted: list[Listed] = []
    count: Counter[Kind] = Counter()
    limits = {"job": retention.jobs_max, "application": retention.applications_max}
    for archive in sorted(listed, key=lambda archive: (-archive.modified_ms, archive.archive_id)):
        count[archive.kind] += 1
        age_ms = now_ms - archive.modified_ms
        is_old = retention.age_ms_max is not None and bool(archive.modified_ms) and age_ms >= retention.age_ms_max
        is_beyond = 0 < limits[archive.kind] < count[archive.kind]
        (deleted if is_old or is_beyond else kept).append(archive)
    return kept, deleted


class Directory:
    """A monitored directory.

    Args:
        directory: its path or URL.

    Raises:
        ConfigurationError: see `open_directory`.
    """

    def __init__(self, directory: str) -> None:
        self.fs, self.path = open_directory(directory, HISTORY_DIRS.key())

    @property
    def name(self) -> str:
        """How logs name it."""
        return hide(shown(self.fs, self.path))

    def listing(self) -> list[Listed]:
        """Return the archives; empty if the directory does not exist yet.

        Raises:
            OSError: if the file system does not answer.
        """
        self.fs.invalidate_cache()
        archives = []
        for info in self._ls(self.path):
            name = posixpath.basename(info["name"].rstrip("/"))
            if not _ID.fullmatch(name):
                continue
            if info["type"] == "file":
                archives.append(Listed("job", name, {name: _file(info)}))
            elif info["type"] == "directory":
                archives += self._applications(posixpath.join(self.path, name, _APPLICATIONS))
        return archives

    def _applications(self, path: str) -> Iterator[Listed]:
        for info in self._ls(path):
            application_id = posixpath.basename(info["name"].rstrip("/"))
            if info["type"] != "directory" or not _ID.fullmatch(application_id):
                continue
            below = posixpath.join(path, application_id)
            files = {posixpath.basename(file["name"]): _file(file) for file in self._files(below)}
            jobs = {posixpath.basename(file["name"]): _file(file) for file in self._files(posixpath.join(below, _JOBS))}
            known = {application_id: files[_SUMMARY]} if _SUMMARY in files else {}
            known |= {name: file for name, file in jobs.items() if _ID.fullmatch(name)}
            if known:
                yield Listed("application", application_id, known)

    def _files(self, path: str) -> list[dict[str, Any]]:
        return [info for info in self._ls(path) if info["type"] == "file"]

    def _ls(self, path: str) -> list[dict[str, Any]]:
        try:
            listed: list[dict[str, Any]] = self.fs.ls(path, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return listed

    def read(self, file: ArchiveFile) -> bytes:
        """Return the content of a file.

        Raises:
            OSError: if it cannot be read.
            ValueError: if it is too large.
        """
        if file.size is not None and file.size > FILE_BYTES_MAX:
            raise ValueError(f"it has {file.size} bytes, and an archive {FILE_BYTES_MAX} at most")
        data: bytes = self.fs.cat_file(file.path)
        return data

    def delete(self, archive: Listed) -> None:
        """Delete an archive, and the directories of an application if nothing else is in them.

        Raises:
            OSError: if the file system refuses.
        """
        for file in archive.files.values():
            with contextlib.suppress(FileNotFoundError):
                self.fs.rm_file(file.path)
        if archive.kind == "application" and archive.archive_id in archive.files:
            above = posixpath.dirname(archive.files[archive.archive_id].path)
            for path in (posixpath.join(above, _JOBS), above):
                with contextlib.suppress(OSError):  # such as one that is not empty; stores have no directories
                    self.fs.rmdir(path)


def _file(info: Mapping[str, Any]) -> ArchiveFile:
    size = info.get("size")
    return ArchiveFile(info["name"], size if isinstance(size, int) else None, _modified_ms(info))


def _modified_ms(info: Mapping[str, Any]) -> int:
    if isinstance(modified := info.get("modificationTime"), int):  # WebHDFS, in ms
        return modified
    for key in ("mtime", "LastModified", "last_modified", "modified", "updated", "created"):
        moment = info.get(key)
        if isinstance(moment, str):
            with contextlib.suppress(ValueError):
                moment = datetime.fromisoformat(moment)
        if isinstance(moment, datetime):
            return int(moment.timestamp() * 1000)
        if isinstance(moment, int | float):
            return int(moment * 1000)
    return 0


class _Overview(msgspec.Struct):
    """An answer with a list of jobs, or of applications."""

    jobs: list[dict[str, Any]] = []
    applications: list[dict[str, Any]] = []


def parse_archive(data: bytes, kind: Kind, archive_id: str) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the answers of an archive by path, and the entry of its subject in the overview.

    Raises:
        ValueError: if it is no archive of this job or application, or an answer is no JSON.
    """
    try:
        answers = {entry.path: entry.json for entry in msgspec.json.decode(data, type=Archive).archive}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f'it is not of the form {{"archive": [{{"path": ..., "json": ...}}]}}: {error}') from error
    path, name = (OVERVIEW, "jid") if kind == "job" else (APPLICATIONS_OVERVIEW, "id")
    if path not in answers:
        raise ValueError(f"there is no {path} in it")
    for where, text in answers.items():
        try:
            msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"the answer of {where[:200]} is no JSON: {error}") from error
    try:
        overview = msgspec.json.decode(answers[path], type=_Overview)
    except msgspec.ValidationError as error:
        raise ValueError(f"the answer of {path} is no overview: {error}") from error
    entries = overview.jobs if kind == "job" else overview.applications
    entry = next((entry for entry in entries if entry.get(name) == archive_id), None)
    if entry is None:
        raise ValueError(f"the {kind} {archive_id} is not in its {path}")
    details = msgspec.json.decode(answers.get(f"/jobs/{archive_id}", "{}"))
    if isinstance(details, dict):
        entry |= {field: details[field] for field in OWN_FIELDS if field in details}
    return answers, entry
