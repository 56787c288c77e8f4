"""The history server: Flink's REST API about ended jobs, from the archives that they have written (`archive`).

`Archives` monitors directories. It lists them from time to time, reads new and changed archives, and keeps a copy of
each in a local directory, from which it answers. So a job whose archive was deleted can still be shown, and a file
system that does not answer delays nobody.

- A file that is no archive, or only a part of one, is skipped with a warning, and read again at each look. Another
  warning follows only when the file has changed.
- It deletes the oldest archives beyond a number, and those beyond an age. Both are off by default. Nothing else is ever
  deleted, and never a directory that has other files in it.

`HistoryHandlers` answer from them: `/config`, `/overview`, `/jobs`, `/jobs/overview`, all paths below `/jobs/:jobid`
that archives have, the same of applications, and the page. Access checks are those of the REST API.

Source: Flink's `HistoryServerArchiveFetcher`, `HistoryServerApplicationArchiveFetcher` and `HistoryServerOptions`.
"""

from __future__ import annotations

import logging
import tempfile
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock import __version__
from penstock.base import options, server_options
from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError
from penstock.base.secrets import hide
from penstock.server.dispatcher import Dispatcher
from penstock.server.history.archive import (
    APPLICATIONS_OVERVIEW,
    OVERVIEW,
    Archive,
    ArchiveFile,
    Directory,
    Kind,
    Listed,
    Retention,
    parse_archive,
    retain,
)
from penstock.server.rest.application import ROUTES, application
from penstock.server.rest.calls.context import RestContext, RestSettings
from penstock.server.rest.calls.routing import Call, Encoded, Route, encoded, not_found
from penstock.server.rest.handlers import cluster
from penstock.server.rest.handlers.jobs import Applications
from penstock.server.rest.messages.jobs import JobIds, JobsOverview
from penstock.server.rest.messages.vertices import TaskManagers
from penstock.server.rest.server import RestServer
from penstock.storage.files import shown

_log = logging.getLogger("penstock.history")

#: How many archives are in memory.
LOADED_MAX: Final = 16
#: How long (s) the end of the server waits for a look that is under way.
END_SECONDS: Final = 5.0


@dataclass(frozen=True)
class _Entry:
    """The entry of an overview, and where the copy of the archive is."""

    overview: dict[str, Any]
    copy: Path


class Archives:
    """The archives in some directories. `refresh` is called by one thread; other methods by any.

    Args:
        directories: where they are.
        cache: a directory for copies, which nothing else writes into.
        retention: which of them are kept.
        forgets: the kinds whose archives are forgotten when someone deletes them.
        now: the clock (s since the epoch).
    """

    def __init__(
        self,
        directories: Sequence[Directory],
        cache: Path,
        retention: Retention | None = None,
        forgets: frozenset[Kind] = frozenset(),
        now: Callable[[], float] = time.time,
    ) -> None:
        self._directories = directories
        self._cache = cache
        self._retention = retention or Retention()
        self._forgets = forgets
        self._now = now
        #: by the number of the directory, the kind and the id: the files that were read, by the id of their subject
        self._known: dict[tuple[int, Kind, str], dict[str, ArchiveFile]] = {}
        #: by the subject of a warning: its state then
        self._warned: dict[str, ArchiveFile | str] = {}
        self._copies = 0
        self._lock = threading.Lock()
        #: by the kind and the id of the subject
        self._entries: dict[tuple[Kind, str], _Entry] = {}
        self._loaded: OrderedDict[Path, dict[str, str]] = OrderedDict()

    def refresh(self) -> None:
        """Look for new, changed, deleted and expired archives."""
        for number, directory in enumerate(self._directories):
            try:
                listed = directory.listing()
            except Exception as error:  # noqa: BLE001 - the file system's own errors; it is asked again
                self._warn_once(
                    directory.name, str(error), "%s cannot be listed, and is tried again: %s", directory.name, error
                )
                continue
            self._warned.pop(directory.name, None)
            kept, deleted = retain(listed, self._retention, int(self._now() * 1000))
            for archive in deleted:
                self._delete(number, archive)
            for archive in reversed(kept):
                self._read(number, archive)
            self._forget_missing(number, {(archive.kind, archive.archive_id) for archive in kept})

    def _read(self, number: int, archive: Listed) -> None:
        directory = self._directories[number]
        key = (number, archive.kind, archive.archive_id)
        for subject, file in archive.files.items():
            if self._known.get(key, {}).get(subject) == file:
                continue
            kind: Kind = "application" if archive.kind == "application" and subject == archive.archive_id else "job"
            where = hide(shown(directory.fs, file.path))
            try:
                data = directory.read(file)
                _, overview = parse_archive(data, kind, subject)
            except Exception as error:  # noqa: BLE001 - a broken file, or the file system's own errors
                self._warn_once(where, file, "%s is skipped, and is tried again: %s", where, error)
                continue
            self._warned.pop(where, None)
            self._remember(kind, subject, overview, data)
            self._known.setdefault(key, {})[subject] = file

    def _remember(self, kind: Kind, subject: str, overview: dict[str, Any], data: bytes) -> None:
        self._copies += 1
        copy = self._cache / f"{kind}-{subject}-{self._copies}.json"
        copy.write_bytes(data)
        with self._lock:
            before = self._entries.get((kind, subject))
            self._entries[kind, subject] = _Entry(overview, copy)
        self._drop(before)

    def _drop(self, entry: _Entry | None) -> None:
        if entry is not None:
            with self._lock:
                self._loaded.pop(entry.copy, None)
            entry.copy.unlink(missing_ok=True)

    def _delete(self, number: int, archive: Listed) -> None:
        directory = self._directories[number]
        where = hide(shown(directory.fs, next(iter(archive.files.values())).path))
        try:
            directory.delete(archive)
        except Exception as error:  # noqa: BLE001 - the file system's own errors
            options = (
                server_options.HISTORY_RETAINED_JOBS,
                server_options.HISTORY_RETAINED_APPLICATIONS,
                server_options.HISTORY_RETAINED_TTL_MS,
            )
            keys = ", ".join(option.key() for option in options)
            self._warn_once(
                where,
                "delete",
                "%s is to be deleted (%s), and cannot be: %s. Let this process write there, or unset the option",
                where,
                keys,
                error,
            )
        else:
            _log.info("%s is deleted, as older than those to keep", where)
        self._forget(number, archive.kind, archive.archive_id)

    def _forget_missing(self, number: int, present: set[tuple[Kind, str]]) -> None:
        for of_directory, kind, archive_id in list(self._known):
            if of_directory == number and (kind, archive_id) not in present and kind in self._forgets:
                _log.info("the archive of %s %s is gone, and is forgotten", kind, archive_id)
                self._forget(number, kind, archive_id)

    def _forget(self, number: int, kind: Kind, archive_id: str) -> None:
        known = self._known.pop((number, kind, archive_id), None)
        if known is None:
            return
        still = {subject for files in self._known.values() for subject in files}
        for subject in known.keys() - still:
            of_kind: Kind = "application" if kind == "application" and subject == archive_id else "job"
            with self._lock:
                entry = self._entries.pop((of_kind, subject), None)
            self._drop(entry)

    def _warn_once(self, where: str, state: ArchiveFile | str, text: str, *values: object) -> None:
        """Log a warning, unless the last one about the same was of the same state."""
        if self._warned.get(where) != state:
            self._warned[where] = state
            _log.warning(text, *(hide(str(value)) for value in values))

    def overviews(self, kind: Kind) -> list[dict[str, Any]]:
        """Return the entries of the overview of all jobs or applications, latest first."""
        with self._lock:
            entries = [entry.overview for (of_kind, _), entry in self._entries.items() if of_kind == kind]
        return sorted(entries, key=lambda entry: -_number(entry.get("start-time")))

    def find_answer(self, kind: Kind, subject: str, path: str) -> bytes | None:
        """Return the archived answer of a path; None if there is none.

        Raises:
            KeyError: if there is no archive of this job or application.
        """
        with self._lock:
            entry = self._entries[kind, subject]
            answers = self._loaded.get(entry.copy)
            if answers is not None:
                self._loaded.move_to_end(entry.copy)
        if answers is None:
            try:
                data = entry.copy.read_bytes()
            except FileNotFoundError:
                raise KeyError(subject) from None  # it was forgotten just now
            answers = {part.path: part.json for part in msgspec.json.decode(data, type=Archive).archive}
            with self._lock:
                self._loaded[entry.copy] = answers
                while len(self._loaded) > LOADED_MAX:
                    self._loaded.popitem(last=False)
        text = answers.get(path)
        return None if text is None else text.encode()


def _number(value: object) -> float:
    return value if isinstance(value, int | float) else 0


class HistoryHandlers:
    """The handlers of the REST API over archives.

    Args:
        archives: the archives.
        refresh_ms: how often a page shall ask.
    """

    def __init__(self, archives: Archives, refresh_ms: int) -> None:
        self._archives = archives
        self._refresh_ms = refresh_ms

    def config(self, call: Call) -> cluster.DashboardConfig:
        """Return the settings that a web page requests first."""
        features = cluster.Features(web_cancel=False, web_rescale=False, web_history=True)
        return msgspec.structs.replace(cluster.config(call), refresh_interval=self._refresh_ms, features=features)

    def overview(self, call: Call) -> cluster.Overview:
        """Return the counts of jobs; a history has no workers."""
        states = Counter(str(entry.get("state")) for entry in self._archives.overviews("job"))
        return cluster.Overview(
            taskmanagers=0,
            slots_total=0,
            slots_available=0,
            jobs_running=0,
            jobs_finished=states["FINISHED"],
            jobs_cancelled=states["CANCELED"],
            jobs_failed=states["FAILED"],
            flink_version=cluster.FLINK_VERSION,
            flink_commit=f"penstock-{__version__}",
        )

    def job_ids(self, call: Call) -> Encoded:
        """List the ids of all jobs."""
        listed = self._archives.overviews("job")
        return Encoded(encoded({"jobs": [{"id": entry["jid"], "status": entry.get("state")} for entry in listed]}))

    def jobs_overview(self, call: Call) -> Encoded:
        """List all jobs."""
        return Encoded(encoded({"jobs": self._archives.overviews("job")}))

    def applications_overview(self, call: Call) -> Encoded:
        """List all applications."""
        return Encoded(encoded({"applications": self._archives.overviews("application")}))

    def taskmanagers(self, call: Call) -> TaskManagers:
        """Return no workers: a history has none."""
        return TaskManagers([])

    def answer(self, kind: Kind, route: Route, call: Call) -> Encoded:
        """Return the archived answer of a path; 404 if there is none."""
        subject = call.path["jobid" if kind == "job" else "applicationid"]
        parts = (call.path[part[1:]] if part.startswith(":") else part for part in route.path.split("/"))
        path = "/".join(parts)
        try:
            body = self._archives.find_answer(kind, subject, path)
        except KeyError:
            raise not_found(f"{kind.capitalize()} {subject} not found: no archive of it was read") from None
        if body is None:
            raise not_found(f"The archive of {kind} {subject} has no {path}: only a running job answers that")
        return Encoded(body)

    def routes(self) -> list[Route]:
        """Return the table of routes: those of the REST API that archives answer, with the access that they need."""
        own: dict[str, tuple[Callable[[Call], Any], Any]] = {
            "/config": (self.config, cluster.DashboardConfig),
            "/overview": (self.overview, cluster.Overview),
            "/jobs": (self.job_ids, JobIds),
            OVERVIEW: (self.jobs_overview, JobsOverview),
            APPLICATIONS_OVERVIEW: (self.applications_overview, Applications),
            "/taskmanagers": (self.taskmanagers, TaskManagers),
        }
        kinds: dict[str, Kind] = {"/jobs/:jobid": "job", "/applications/:applicationid": "application"}
        kept = {"/login", "/logout", "/jobmanager/config", "/jobmanager/environment"}
        routes = []
        for route in ROUTES:
            if route.path in own and route.method == "GET":
                routes.append(replace(route, handler=own[route.path][0]))
                continue
            if route.path in kept:
                routes.append(route)
            above = next((path for path in kinds if route.path == path or route.path.startswith(f"{path}/")), None)
            if above is not None and route.method == "GET" and route.access != "changes":
                routes.append(replace(route, handler=_bind(self.answer, kinds[above], route)))
        return routes


def _bind(answer: Callable[[Kind, Route, Call], Encoded], kind: Kind, route: Route) -> Callable[[Call], Encoded]:
    return lambda call: answer(kind, route, call)


def history_settings(configuration: Configuration) -> RestSettings:
    """Return where the history server listens, and who may access it.

    Raises:
        ConfigurationError: if the settings contradict each other, or are not safe.
    """
    read = configuration.read
    replaced = (options.REST_PORT, options.REST_BIND_PORT, options.REST_BIND_ADDRESS, options.REST_ADDRESS)
    keys = {option.key() for option in replaced}
    known = {key: value for key, value in configuration.to_dict().items() if key not in keys}
    known[options.REST_PORT.key()] = str(read(server_options.HISTORY_WEB_PORT))
    known[options.REST_BIND_ADDRESS.key()] = read(server_options.HISTORY_WEB_ADDRESS)
    encrypts = read(server_options.HISTORY_WEB_SSL_ENABLED) and read(options.REST_SSL_ENABLED)
    known[options.REST_SSL_ENABLED.key()] = str(encrypts).lower()
    try:
        return RestSettings.of(Configuration.from_dict(known))
    except ConfigurationError as error:
        text = str(error).replace(options.REST_BIND_ADDRESS.key(), server_options.HISTORY_WEB_ADDRESS.key())
        both = f"{server_options.HISTORY_WEB_SSL_ENABLED.key()} with {options.REST_SSL_ENABLED.key()}"
        raise ConfigurationError(text.replace(options.REST_SSL_ENABLED.key(), both)) from error


class HistoryServer:
    """A history server: a context manager that serves, and looks for archives in a thread, until it is left.

    Args:
        configuration: the options; `historyserver.archive.fs.dir` names the directories.

    Raises:
        ConfigurationError: if no directory is named, or options contradict each other or are not safe.
        OperationError: if the port is not free.

    Examples:
        >>> import json, tempfile, urllib.request
        >>> from penstock.base.configuration import Configuration
        >>> from penstock.server.history.server import HistoryServer
        >>> directory = tempfile.mkdtemp()
        >>> options = {"historyserver.archive.fs.dir": directory, "historyserver.web.port": "0"}
        >>> with HistoryServer(Configuration.from_dict(options)) as server:
        ...     with urllib.request.urlopen(f"{server.url}/jobs/overview") as answer:
        ...         json.load(answer)
        {'jobs': []}
    """

    def __init__(self, configuration: Configuration) -> None:
        read = configuration.read
        named = read(server_options.HISTORY_DIRS) or read(server_options.ARCHIVE_DIR) or ""
        directories = [Directory(name.strip()) for name in named.split(",") if name.strip()]
        if not directories:
            raise ConfigurationError(
                f"{server_options.HISTORY_DIRS.key()} is not set: name the directories into which jobs write archives "
                f"({server_options.ARCHIVE_DIR.key()}), or give --dir"
            )
        forgets: dict[Kind, bool] = {
            "job": read(server_options.HISTORY_CLEAN_JOBS),
            "application": read(server_options.HISTORY_CLEAN_APPLICATIONS),
        }
        retention = Retention(
            read(server_options.HISTORY_RETAINED_JOBS),
            read(server_options.HISTORY_RETAINED_APPLICATIONS),
            read(server_options.HISTORY_RETAINED_TTL_MS),
        )
        self._interval_s = read(server_options.HISTORY_REFRESH_MS) / 1000
        settings = history_settings(configuration)
        self._cache = tempfile.TemporaryDirectory(
            prefix="penstock-history-", dir=read(server_options.HISTORY_WEB_TMPDIR), ignore_cleanup_errors=True
        )
        self.archives = Archives(
            directories,
            Path(self._cache.name),
            retention,
            frozenset(kind for kind, is_set in forgets.items() if is_set),
        )
        handlers = HistoryHandlers(self.archives, read(server_options.HISTORY_WEB_REFRESH_MS))
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._look, name="penstock-history", daemon=True)
        try:
            context = RestContext(Dispatcher(), configuration)
            build = partial(application, table=handlers.routes())
            self._server = RestServer(context, settings, build, "history server")
        except BaseException:
            self._cache.cleanup()
            raise

    @property
    def url(self) -> str:
        """The server's URL."""
        return self._server.url

    def __enter__(self) -> HistoryServer:
        self._server.start()
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ends.set()
        self._server.stop()
        self._thread.join(END_SECONDS)
        self._cache.cleanup()

    def _look(self) -> None:
        while True:
            try:
                self.archives.refresh()
            except Exception:  # noqa: BLE001 - the server goes on
                _log.exception("the look for archives fails, and is tried again")
            if self._ends.wait(self._interval_s):
                return
