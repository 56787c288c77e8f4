"""A Spark session as Penstock uses it: its few operations, its executors, and its pages.

`Executors` is the driver's view of Spark's executors: the executor that runs a task, and the executors that Spark takes
away. Spark has no Python API for either, so this module asks the driver's JVM. An executor is decommissioned at the
request of a standalone master or worker, YARN, Kubernetes, dynamic allocation or a signal. Spark then schedules no new
tasks on it, and lets the running ones continue until they end, or until the executor is ended from outside. No
executors are visible where Spark is one process, or is only reachable over Spark Connect.

`SparkHandle` has the few operations that Penstock needs of a Spark session, classic or over Spark Connect.

`SparkPages` knows Spark's own pages: the addresses and descriptions of workers on them. Spark shows the description of
a job as HTML if it contains only text and links that begin with `/`, and as plain text otherwise. It prepends its own
base path to such a link. The page of a Penstock job is on another port, so the link to it begins with `//` and inherits
the scheme of Spark's page. That works if Spark has no base path and both pages have the same scheme. Otherwise, such as
through YARN's proxy, the address is text. It is the text of the link as well, so that readers elsewhere, such as of
Spark's REST API, see the address in either case.
"""

from __future__ import annotations

import atexit
import hashlib
import html
import io
import os
import re
import shutil
import socket
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import penstock
from penstock.base.configuration import Configuration
from penstock.base.errors import OperationError, shorten
from penstock.base.options import PYTHON_ARCHIVES, PYTHON_FILES
from penstock.base.secrets import hide
from penstock.drivers.running_job import find_job_page
from penstock.drivers.spark.python_workers import DAEMON, DAEMON_SETTING

if TYPE_CHECKING:
    import pyarrow
    from pyspark import SparkContext
    from pyspark.sql import Column, DataFrame, SparkSession


#: How many tasks of a stage to look at. A worker's stage has one, which is retried at most a few times.
TASKS_MAX = 100


class ExecutorName(NamedTuple):
    """An executor by its name on Spark's pages and in its logs, and its host."""

    executor_id: str
    host: str

    def __str__(self) -> str:
        return f"executor {self.executor_id} on {self.host}"


class Executors:
    """The executors of one Spark context. Any thread may call the methods; each call is a round trip to the JVM."""

    def __init__(self, context: SparkContext) -> None:
        java: Any = context._jsc
        self._context = java.sc()

    def of(self, tag: str) -> ExecutorName | None:
        """Return the executor of a job group's one running task; None if no task runs or Spark has not noted it yet."""
        tracker, store = self._context.statusTracker(), self._context.statusStore()
        for job_id in tracker.getJobIdsForGroup(tag):
            job = tracker.getJobInfo(job_id)
            for stage_id in job.get().stageIds() if job.isDefined() else ():
                tasks = store.taskList(stage_id, 0, TASKS_MAX)
                for index in range(tasks.size()):
                    task = tasks.apply(index)
                    if task.status() == "RUNNING":
                        return ExecutorName(task.executorId(), task.host())
        return None

    def is_leaving(self, executor_id: str) -> bool:
        """Return whether Spark is decommissioning the executor."""
        return bool(self._context.taskScheduler().getExecutorDecommissionState(executor_id).isDefined())


LOOPBACK = "127.0.0.1"
OUTCOME_SCHEMA = "outcome string, detail string"
PROCESS_DIED = "its Python process died"

#: The settings for the queries of epochs, which move few rows: a row is a batch of records. Adaptive execution would
#: run a Spark job per exchange and replan the rest; all numbers of partitions are given anyway. Generating and
#: compiling code takes longer than such a query, especially in a JVM that has just started.
SHORT_QUERIES = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.exchange.reuse": "true",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}

Entry = Callable[[Iterator["pyarrow.RecordBatch"]], Iterator["pyarrow.RecordBatch"]]


class SparkHandle:
    """A running Spark session.

    Attributes:
        session: the session itself.
        master: the Spark master's address.
        is_local: whether all of Spark runs on this machine.
        is_connect: whether it is reached over Spark Connect.
        is_one_process: whether it runs in one JVM, unlike the executors of a `local-cluster`.
    """

    def __init__(self, session: SparkSession) -> None:
        self.session = session
        self.is_connect = "connect" in type(session).__module__
        self.master = "connect" if self.is_connect else str(session.sparkContext.master)
        self.is_local = self.master.startswith("local")
        self.is_one_process = local_slots(self.master, 1, 1) is not None
        self._ship_lock = threading.Lock()
        self._shipped = False
        self._sent: set[str] = set()
        #: the JVM's session that `numbers` uses
        self._short: Any = None
        self._short_lock = threading.Lock()

    def master_hosts(self) -> tuple[str, str]:
        """Return the address for the job master to listen on, and the one at which workers reach it."""
        if self.is_local:
            return LOOPBACK, LOOPBACK
        if self.is_connect:
            host = socket.gethostbyname(socket.gethostname())
            return host, host
        conf = self.session.sparkContext.getConf()
        host = conf.get("spark.driver.host") or socket.gethostbyname(socket.gethostname())
        return conf.get("spark.driver.bindAddress") or host, host

    def fixed_slots(self) -> int | None:
        """Return how many tasks Spark ever runs at once; None if unknown, as for any master but a local one."""
        if self.is_connect or not self.is_local:
            return None
        context = self.session.sparkContext
        processors = context._jvm.java.lang.Runtime.getRuntime().availableProcessors()  # type: ignore[union-attr]
        return local_slots(self.master, int(context.getConf().get("spark.task.cpus", "1") or 1), int(processors))

    def numbers(self, count: int) -> DataFrame:
        """Return the numbers below `count`, one per partition, for the short queries of epochs (`SHORT_QUERIES`)."""
        if self.is_connect:
            return self.session.range(0, count, 1, count)
        from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

        with self._short_lock:
            if self._short is None:
                self._short = self.session._jsparkSession.cloneSession()
                for key, value in SHORT_QUERIES.items():
                    self._short.conf().set(key, value)
        return ClassicDataFrame(self._short.range(0, count, 1, count), self.session)

    @cached_property
    def pages(self) -> SparkPages:
        """Spark's own pages."""
        # Workers load this module as well, and do not need the pages.

        return SparkPages(None if self.is_connect else self.session.sparkContext)

    @cached_property
    def shares_shuffles(self) -> bool:
        """Whether two readers of one shuffle of `numbers`, each with its own filter, share it. Spark is asked once."""
        if self.is_connect:
            return False
        from pyspark.sql import functions as sql

        shuffled = self.numbers(2).repartition(2, "id")
        number = sql.col("id")
        reader, other = (shuffled.where(after_shuffle(c)) for c in (number.isin([0]), number.isin([1]) | (number < 0)))
        plan: str = reader.union(other)._jdf.queryExecution().executedPlan().toString()
        return "ReusedExchange" in plan

    def slots_now(self) -> int | None:
        """Return how many tasks Spark runs at once on its current executors; None over Spark Connect."""
        return None if self.is_connect else int(self.session.sparkContext.defaultParallelism)

    def executors(self) -> Executors | None:
        """Return Spark's executors; None if only the driver runs tasks, or the executors are not visible."""
        if self.is_connect or self.is_one_process:
            return None
        return Executors(self.session.sparkContext)

    def run_task(self, entry: Entry, tag: str, description: str) -> list[tuple[str, str]]:
        """Run `entry` as a Spark job of one task; return its rows when the job has ended.

        Args:
            entry: a function from and to Arrow batches of `OUTCOME_SCHEMA`.
            tag: identifies the job for `interrupt`.
            description: the description on Spark's own pages.

        Raises:
            Exception: whatever Spark raises; `short_reason` summarizes it.
        """
        self.begin(tag, description)
        frame = self.session.range(0, 1, 1, 1)
        return [(row[0], row[1]) for row in frame.mapInArrow(entry, OUTCOME_SCHEMA).collect()]

    def begin(self, tag: str, description: str) -> None:
        """Let `interrupt` find the Spark jobs that this thread runs from now on."""
        if self.is_connect:
            self.session.addTag(tag)
        else:
            self.session.sparkContext.setJobGroup(tag, description, interruptOnCancel=True)

    def interrupt(self, tag: str) -> None:
        """Kill the Spark job with this tag and its process; do nothing if none exists."""
        if self.is_connect:
            self.session.interruptTag(tag)
        else:
            self.session.sparkContext.cancelJobGroup(tag)

    def ship_package(self) -> None:
        """Send this version of Penstock to Spark's machines, once.

        A local master needs no copy, nor do Python workers that fork from Penstock's daemon, which has loaded the
        package.
        """
        with self._ship_lock:
            if self._shipped or self.is_local or SHARED_VARIABLE in os.environ:  # a session has sent it
                return
            self._shipped = self._has_daemon()
            if self._shipped:
                return
            archive = package_archive()
            folder = Path(tempfile.mkdtemp(prefix="penstock-"))
            # Spark serves the file to its machines as long as the session lives.
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            path = folder / f"penstock-{hashlib.sha256(archive).hexdigest()[:12]}.zip"
            path.write_bytes(archive)
            add: Any = getattr(self.session, "addArtifacts", None)
            if add is not None:
                add(str(path), pyfile=True)
            else:
                self.session.sparkContext.addPyFile(str(path))
            self._shipped = True

    def _has_daemon(self) -> bool:
        return not self.is_connect and self.session.sparkContext.getConf().get(DAEMON_SETTING) == DAEMON

    def ship_dependencies(self, configuration: Configuration) -> None:
        """Send a job's Python files (also zips and directories) and archives to Spark's machines, once.

        Raises:
            PenstockError: if Spark rejects one.
        """
        with self._ship_lock:
            for path in self._to_send(configuration.read(PYTHON_FILES)):
                self._send(zipped(path) if os.path.isdir(path) else path, "addPyFile", pyfile=True)
            for path in self._to_send(configuration.read(PYTHON_ARCHIVES)):
                self._send(path, "addArchive", archive=True)

    def _to_send(self, paths: str | None) -> list[str]:
        new = [path for path in (paths or "").split(",") if path and path not in self._sent]
        self._sent.update(new)
        return new

    def _send(self, path: str, method: str, **kind: bool) -> None:
        try:
            if self.is_connect:
                self.session.addArtifacts(path, **kind)
            else:
                getattr(self.session.sparkContext, method)(path)
        except Exception as error:  # noqa: BLE001 - whatever Spark raises becomes a reason
            raise OperationError(f"Spark rejected {path}: {short_reason(error)}") from None


#: The environment variable of a session's programs (`sharing`) with the directory for files that Spark's machines
#: fetch: these stay as long as the session.
SHARED_VARIABLE: Final = "PENSTOCK_SHARED_SPARK"
#: The environment variable, also of Python workers, that identifies a program: programs do not share workers, because
#: its value differs.
PROGRAM_VARIABLE: Final = "PENSTOCK_PROGRAM"


def after_shuffle(condition: Column) -> Column:
    """Return an equivalent condition that Spark does not push below a shuffle.

    Below the shuffle, each reader's own condition would require a shuffle of its own. Spark treats an expression with
    the partition's number as nondeterministic, and does not infer from `coalesce` that a column must not be null.
    """
    from pyspark.sql import functions as sql

    return sql.coalesce(condition, sql.lit(False)) == (sql.spark_partition_id() >= 0)


def local_slots(master: str, task_cpus: int, processors: int) -> int | None:
    """Return how many tasks a local master runs at once; None for any other master."""
    match = re.fullmatch(r"local(?:\[\s*(\d+|\*)\s*(?:,[^]]*)?\])?", master.strip())
    if match is None:
        return None
    threads = match[1] or "1"
    return (processors if threads == "*" else int(threads)) // task_cpus


def zipped(directory: str) -> str:
    """Zip a directory of modules and packages; return the path, which lasts as long as this process or its session."""
    session = os.environ.get(SHARED_VARIABLE)
    folder = tempfile.mkdtemp(prefix="penstock-", dir=session)
    if session is None:
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    digest = hashlib.sha256(directory.encode()).hexdigest()[:8]
    name = os.path.join(folder, f"{os.path.basename(os.path.normpath(directory))}-{digest}")
    return shutil.make_archive(name, "zip", directory)


def package_archive() -> bytes:
    """Return Penstock's source as a zip; the same source gives the same bytes."""
    root = Path(os.path.dirname(penstock.__file__))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(root.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                name = str(path.relative_to(root.parent))
                archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), path.read_bytes())
    return buffer.getvalue()


_PYTHON_ERROR = re.compile(r"^(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|Exit|Interrupt)\b.*", re.MULTILINE)


#: The remedy for a wrong Python.
PYTHON_REMEDY = "set PYSPARK_PYTHON, or spark.pyspark.python, before the Spark session starts"


def python_problem(text: str) -> str | None:
    """Describe the problem with the workers' Python in a Spark exception, and its remedy; None for other problems."""
    if match := re.search(r"different version: (\S+) than that in driver:? (\d+\.\d+)", text):
        return (
            f"the workers run Python {match[1]}, and this program Python {match[2]}: {PYTHON_REMEDY}, to a Python "
            f"{match[2]} with the same packages, such as {sys.executable} where workers have it"
        )
    if match := re.search(r'Cannot run program "([^"]+)"', text):
        return f"the workers' Python, {match[1]}, cannot be run: {PYTHON_REMEDY}"
    if match := re.search(r"Error from python worker:\n(.*?)\nPYTHONPATH was", text, re.DOTALL):
        lines = match[1].strip().splitlines()
        return f"the workers' Python does not start: {shorten(lines[-1].strip() if lines else '')}: {PYTHON_REMEDY}"
    return None


def short_reason(error: BaseException) -> str:
    """Summarize a Spark failure in one line for a human: no stack, no Java."""
    text = str(error)
    kind = type(error).__name__
    if (problem := python_problem(text)) is not None:
        return problem
    if "Python worker exited unexpectedly" in text or "Python worker failed to connect" in text:
        return PROCESS_DIED
    if "SPARK_JOB_CANCELLED" in text or "OPERATION_CANCELED" in text or re.search(r"[Jj]ob \d+ cancelled", text):
        return "its Spark job was cancelled"
    if "SparkContext was shut down" in text or "stopped SparkContext" in text:
        return "Spark was stopped"
    if kind in ("Py4JNetworkError", "ConnectionRefusedError", "ConnectionResetError"):
        return "Spark's JVM is gone"
    if kind == "PythonException" or "PythonException" in text:
        errors: list[str] = _PYTHON_ERROR.findall(text.split("Traceback (most recent call last):")[-1])
        if errors:
            return shorten(errors[-1].strip())
    if "JAVA_GATEWAY_EXITED" in text:
        return "its JVM exited immediately; its output is above"
    if lost := re.search(r"ExecutorLostFailure \(executor (\S+) exited[^)]*\) Reason: ([^\n]*)", text):
        return shorten(f"its Spark executor {lost[1]} was lost: {lost[2]}")
    words = _first_words(text)
    if words.startswith(_WRITE_FAILED) and (causes := _CAUSE.findall(text)):
        words = f"{words.rstrip('.')}: {hide(_first_words(causes[-1]))}"
    return shorten(words or kind)


#: How Spark begins errors of outputs, which say nothing but that.
_WRITE_FAILED: Final = ("Writing job failed", "Job aborted", "[TASK_WRITE_FAILED]")
_CAUSE: Final = re.compile(r"^Caused by: (.+)$", re.MULTILINE)


def _first_words(text: str) -> str:
    """Return the first meaningful line, without the leading names of Java exceptions."""
    for line in text.splitlines():
        words = re.sub(r"^.*most recent failure: .*?\(TID \d+\)(?: \([^)]*\))?: ", "", line.strip())
        words = re.sub(r"^(?::\s*)?(?:(?:[a-z]\w*\.)+[A-Z][\w$]*(?:: |$))+", "", words).strip()
        if words and not words.startswith(("An error occurred while calling", "at ")):
            return words
    return ""


#: Where Spark keeps the base path of its pages if a proxy serves them.
PROXY_BASE: Final = "spark.ui.proxyBase"
PROXY_BASE_VARIABLE: Final = "APPLICATION_WEB_PROXY_BASE"
_SCHEME: Final = re.compile(r"^https?:")


def described(text: str, page: str | None, spark_ui: str | None) -> str:
    """Return the description of a Spark job for Spark's pages.

    Args:
        text: the purpose of the job.
        page: the address of the page of the Penstock job; None if it has no page.
        spark_ui: the address of Spark's pages; None if links do not work on them.
    """
    if page is None:
        return text
    scheme = _SCHEME.match(page)
    if scheme is None or spark_ui is None or not spark_ui.startswith(scheme[0]):
        return f"{text}, {page}"
    address = html.escape(page)
    return f'{html.escape(text, quote=False)}, <a href="{address.removeprefix(scheme[0])}">{address}</a>'


class SparkPages:
    """The pages of one Spark context; none without a context, as over Spark Connect. Any thread may use it."""

    def __init__(self, context: SparkContext | None) -> None:
        self._context = context

    @cached_property
    def url(self) -> str | None:
        """The address of the pages; None without pages, or if unknown."""
        return None if self._context is None else self._context.uiWebUrl

    def describe(self, job_name: str, job_id: str, worker_id: str | None = None) -> str:
        """Describe a worker of a Penstock job, or a Spark job that runs all its tasks."""
        text = f"Penstock job {job_name}" + (f": {worker_id}" if worker_id is not None else "")
        page = find_job_page(job_id)
        return described(text, page, None if page is None or self._has_base_path else self.url)

    def of_group(self, tag: str) -> str | None:
        """Return the address of the page of a job group's Spark job; None without pages, or before that job exists."""
        if self.url is None or self._context is None:
            return None
        jobs = self._context.statusTracker().getJobIdsForGroup(tag)
        return f"{self.url}/jobs/job/?id={max(jobs)}" if jobs else None

    @cached_property
    def _has_base_path(self) -> bool:
        java: Any = None if self._context is None else self._context._jvm
        if java is None:
            return False
        return bool(java.System.getProperty(PROXY_BASE) or java.System.getenv(PROXY_BASE_VARIABLE))
