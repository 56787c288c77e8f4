"""A job's Spark session: the program's own, one that Penstock starts and ends, or the Spark of a session.

`find_java` finds the Java that Spark needs, or reports exactly which package to install.

`chatter_filtered` keeps Spark's own chatter off the user's terminal; its errors still show. Most of it is logging,
which `log4j2.properties` next to this file configures. In addition, the JVM itself prints a few lines at the start,
before any setting is read, and no flag turns these off. They go to the stderr that the JVM inherits. So while the JVM
starts, that stderr is a pipe, and a thread passes on everything else.

`obtain_spark` provides a session for a job. An adopted session is never stopped or reconfigured. Penstock's own session
serves all jobs of the program, one after another or concurrently. On a local master its number of threads is
independent of the machine's cores, because a worker that waits for data does not occupy a core. So a job of parallelism
4 runs on two cores, though slowly, and Spark has spare threads for the program's own queries.

`SharedSpark` is the Spark of a session: one JVM and one SparkContext, which the processes of its programs share. The
session's process starts them. A program's process connects to the JVM through PySpark's gateway, whose port and secret
are in its environment, and wraps the existing context and session in Python's `SparkContext` and `SparkSession`
(`shared_session.attach`). This limits how programs affect each other:

- A program has a `SparkSession` of its own (`newSession`), with its own views and SQL settings.
- `stop` of either ends nothing, and Ctrl-C cancels only the program's own Spark jobs.
- Files that it sends to Spark's machines stay as long as the session: a task of any program fetches all of them.
- If it has such files, it also has Python workers of its own, so that these never import another program's modules.
- When its process has ended, its Spark jobs are cancelled by their groups. Workers of streams end by themselves.

The JVM itself is shared: a program that fills its memory, or ends it through the gateway, ends all jobs on it.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError, OperationError, PenstockError, write_install_command
from penstock.base.options import EXECUTION_TARGET, PYTHON_EXECUTABLE
from penstock.base.secrets import shown_value
from penstock.drivers.logs import log_to_stderr_by_default
from penstock.drivers.spark.handle import SHARED_VARIABLE, SparkHandle, short_reason
from penstock.drivers.spark.python_workers import warm_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_VERSION_MIN = 17
SPARK = "Spark"

#: Install locations of Java packages: Debian, Fedora and similar; macOS itself; Homebrew on both Mac architectures.
INSTALL_PATTERNS = (
    "/usr/lib/jvm/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*",
    "/usr/local/opt/openjdk*",
)

_VERSION = re.compile(r'version\s*=?\s*"(?:1\.)?(\d+)', re.IGNORECASE)


class JavaNotFoundError(PenstockError, RuntimeError):
    """This machine has no Java that Spark can run on."""


_NEEDED: Final = (("pyspark", "PySpark"), ("pandas", "pandas, which PySpark needs,"))


def require_pyspark(settings: Mapping[str, str]) -> None:
    """Check that PySpark is installed, and pandas, without which its workers do not begin.

    Args:
        settings: the job's settings.

    Raises:
        ConfigurationError: if not. The message says how a program runs without it, and how to get it.
    """
    missing = next((name for module, name in _NEEDED if find_spec(module) is None), None)
    if missing is None:
        return
    if settings.get(EXECUTION_TARGET.key()) == "local":
        reason, remedy = (
            "tables in batch mode and Spark's connectors run on Spark on every target",
            "use streaming mode",
        )
    else:
        reason, remedy = "a program runs on Spark unless it names a target", "set execution.target: local"
    raise ConfigurationError(
        f"{reason}, and {missing} is not installed: {remedy}, which needs no Spark, or install it: "
        f"{write_install_command('spark')}"
    )


def find_java(environ: Mapping[str, str], patterns: Sequence[str] = INSTALL_PATTERNS, needed_by: str = SPARK) -> Path:
    """Return the home of a Java for Spark: JAVA_HOME, else the one on PATH, else the oldest suitable one.

    Args:
        environ: the environment variables.
        patterns: where Java may be installed.
        needed_by: the software that needs Java, for the error.

    Raises:
        JavaNotFoundError: if none is found; the error says which package to install.
    """
    too_old: list[str] = []
    for home in _candidates(environ, patterns):
        version = java_version(home)
        if version is not None and version >= JAVA_VERSION_MIN:
            return home
        if version is not None:
            too_old.append(f"Java {version} in {home}")
    raise JavaNotFoundError(_what_to_install(too_old, needed_by))


def java_version(home: Path) -> int | None:
    """Return the feature version (17, 21, ...) of the Java installed in `home`; None if it does not work."""
    executable = home / "bin" / "java"
    if not os.access(executable, os.X_OK):
        return None
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = _asked(executable)
    match = _VERSION.search(text)
    return int(match[1]) if match else None


def _asked(executable: Path) -> str:
    try:
        return subprocess.run(
            [str(executable), "-version"], capture_output=True, text=True, timeout=20, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _candidates(environ: Mapping[str, str], patterns: Sequence[str]) -> Iterator[Path]:
    if home := environ.get("JAVA_HOME"):
        yield Path(home)
    if executable := shutil.which("java", path=environ.get("PATH", "")):
        yield Path(executable).resolve().parent.parent
    installed = {home.resolve() for pattern in patterns for home in Path("/").glob(pattern.lstrip("/"))}
    yield from sorted(installed, key=lambda home: (java_version(home) or 0, home))


def _what_to_install(too_old: Sequence[str], needed_by: str) -> str:
    finding = f"only {' and '.join(too_old)} was found" if too_old else "none was found"
    local = ". Without Java, a job runs in this process with the setting execution.target: local"
    return (
        f"{needed_by} needs Java {JAVA_VERSION_MIN} or newer, but {finding} in JAVA_HOME, on PATH or in /usr/lib/jvm. "
        "Install it: `apt-get install openjdk-17-jre-headless` (Debian, Ubuntu), `dnf install "
        "java-17-openjdk-headless` (Fedora, Red Hat) or `brew install openjdk@17` (macOS)"
    ) + (local if needed_by == SPARK else "")


LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")

JAVA_OPTIONS = "spark.driver.extraJavaOptions"

CHATTER = (
    b"WARNING: Using incubator modules",
    b"Setting default log level to",
    b"To adjust logging level use",
    b"Using Spark's default log4j profile",
    b"Picked up JAVA_TOOL_OPTIONS",
    b"Picked up JDK_JAVA_OPTIONS",
    b"NOTE: Picked up JDK_JAVA_OPTIONS",
    # Java 24 and newer, about the use of memory and native code by Hadoop and Netty.
    b"WARNING: A restricted method in",
    b"WARNING: A terminally deprecated method in",
    b"WARNING: Please consider reporting this to",
    b"WARNING: Restricted methods will be blocked",
    b"WARNING: Use --enable-native-access",
    b"WARNING: java.lang.System::load",
    b"WARNING: sun.misc.Unsafe",
)


def quiet_settings(settings: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the Spark settings that keep a session quiet, merged with the user's own, which take precedence."""
    merged = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", **settings}
    options = settings.get(JAVA_OPTIONS, "")
    if "log4j" not in options and not _user_configures_logging(environ):
        merged[JAVA_OPTIONS] = f"{options} -Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}".strip()
    return merged


def _user_configures_logging(environ: Mapping[str, str]) -> bool:
    folders = [environ.get("SPARK_CONF_DIR"), environ.get("SPARK_HOME") and os.path.join(environ["SPARK_HOME"], "conf")]
    return any(folder and any(Path(folder).glob("log4j2.*")) for folder in folders)


class ChatterFilter:
    """Passes on a stream of bytes without the lines that are chatter.

    An incomplete line is held back only as long as it might become chatter.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._at_line_start = True

    def feed(self, data: bytes) -> bytes:
        """Take in more of the stream; return the part that may be shown now."""
        pieces = []
        for piece in (self._rest + data).splitlines(keepends=True):
            self._rest = b""
            ends = piece.endswith(b"\n")
            if self._at_line_start and piece.startswith(CHATTER):
                self._rest = b"" if ends else piece
            elif self._at_line_start and not ends and any(line.startswith(piece) for line in CHATTER):
                self._rest = piece
            else:
                pieces.append(piece)
                self._at_line_start = ends
        return b"".join(pieces)


@contextmanager
def chatter_filtered() -> Iterator[None]:
    """Filter everything that processes started within this context, and their children, write to stderr."""
    try:
        target = os.dup(2)
    except OSError:  # this process has no stderr
        yield
        return
    source, sink = os.pipe()
    _flush_stderr()
    os.dup2(sink, 2)
    os.close(sink)
    threading.Thread(target=_pump, args=(source, os.dup(target)), name="penstock-spark-stderr", daemon=True).start()
    try:
        yield
    finally:
        _flush_stderr()
        os.dup2(target, 2)
        os.close(target)


def _flush_stderr() -> None:
    if sys.stderr is not None and not sys.stderr.closed:
        sys.stderr.flush()


def _pump(source: int, target: int) -> None:
    chatter_filter = ChatterFilter()
    try:
        while data := os.read(source, 65_536):
            view = memoryview(chatter_filter.feed(data))
            while view:
                view = view[os.write(target, view) :]
    except OSError:
        pass  # the reader of our stderr has closed it
    finally:
        os.close(source)
        os.close(target)


_log = logging.getLogger("penstock.spark")

#: Settings of a session that Penstock starts, unless the program or Spark's own settings override them. A task of an
#: epoch does not wait 3 s for a processor close to its data. A task that reads from a lost executor reports it after 2
#: s, not 15.
PROMPT = {"spark.locality.wait": "0s", "spark.shuffle.io.retryWait": "600ms"}

LOOPBACK = "127.0.0.1"

#: Threads of a local master beyond the first job's: for concurrent jobs, and for Spark's own work.
SPARE_THREADS = 32


class _OwnSession:
    """The session that Penstock started."""

    def __init__(self, handle: SparkHandle, settings: Mapping[str, str], threads: int | None) -> None:
        self.handle = handle
        self.settings = settings
        self.threads = threads
        self.slots_taken = 0


_lock = threading.RLock()
_own: _OwnSession | None = None
_adopted: dict[int, SparkHandle] = {}


def obtain_spark(settings: Mapping[str, str], slots: int) -> SparkHandle:
    """Return a Spark session for a job that takes `slots` workers; release it with `hand_back`.

    Args:
        settings: the job's settings; those under `spark.` apply to a session that Penstock starts.
        slots: how many Spark tasks the job runs at once.

    Raises:
        ConfigurationError: if PySpark is not installed.
        PenstockError: if Spark cannot be started, with the reason.
    """
    require_pyspark(settings)
    spark_settings = wanted_settings(settings)
    with _lock:
        try:
            active = _active_session()
        except Exception as error:  # noqa: BLE001 - whatever Spark raises becomes a reason
            raise OperationError(f"the Spark session of this program is unusable: {short_reason(error)}") from None
        if active is not None and not (_own is not None and _own.handle.session is active):
            return _adopt(active, spark_settings)
        own = _fitting_own_session(spark_settings, slots, usable=active is not None) or _start(spark_settings, slots)
        own.slots_taken += slots
        return own.handle


def session_of_program(settings: Mapping[str, str]) -> SparkSession:
    """Return the Spark session of this program; without one, start one with these settings.

    Raises:
        PenstockError: if Spark cannot be started, with the reason.
    """
    with _lock:
        active = _active_session()
    return obtain_spark(settings, 0).session if active is None else active


def wanted_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return a job's settings for a Spark session: those under `spark.`, and the Python of its workers."""
    spark_settings = {key: value for key, value in settings.items() if key.startswith("spark.")}
    if executable := settings.get(PYTHON_EXECUTABLE.key()):
        spark_settings.setdefault("spark.pyspark.python", executable)
    return spark_settings


def hand_back(handle: SparkHandle, slots: int) -> None:
    """Release the session's slots after the job has ended."""
    with _lock:
        if _own is not None and _own.handle is handle:
            _own.slots_taken -= slots


def slots_of_machine(handle: SparkHandle) -> int | None:
    """Return the slots of a job that uses all there are; None if unknown.

    A local master that Penstock started has more threads than the machine has processors, so that jobs need not wait.
    """
    with _lock:
        is_ours = _own is not None and _own.handle is handle and _own.threads is not None
    return os.cpu_count() if is_ours else handle.fixed_slots()


def stop_spark() -> None:
    """Stop the session that Penstock started, if any; also called when the interpreter exits."""
    global _own
    with _lock:
        own, _own = _own, None
        if own is not None:
            # Spark may have died already, which is fine here.
            with contextlib.suppress(Exception):
                own.handle.session.stop()


def _active_session() -> SparkSession | None:
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is None and getattr(SparkContext, "_active_spark_context", None) is not None:
        # "Active" refers to one thread; Spark may run anyway, from another thread or with a bare SparkContext.
        session = SparkSession.builder.getOrCreate()
    return session


def _adopt(session: SparkSession, spark_settings: Mapping[str, str]) -> SparkHandle:
    handle = _adopted.get(id(session))
    if handle is None or handle.session is not session:
        _adopted.clear()
        handle = _adopted[id(session)] = SparkHandle(session)
    if "spark.pyspark.python" in spark_settings:
        _log.warning(
            "the active Spark session already has its Python, so %s is not used", spark_settings["spark.pyspark.python"]
        )
    master = spark_settings.get("spark.master")
    if master is not None and master != handle.master:
        _log.warning("the active Spark session runs on %s, so spark.master = %s is not used", handle.master, master)
    return handle


def _fitting_own_session(spark_settings: Mapping[str, str], slots: int, usable: bool) -> _OwnSession | None:
    """Return the running session if it is suitable; otherwise stop it if no job uses it."""
    if _own is None:
        return None
    if not usable:  # the program stopped it
        stop_spark()
        return None
    same = dict(spark_settings) == dict(_own.settings)
    enough = _own.threads is None or slots + 1 <= _own.threads - _own.slots_taken
    if same and enough:
        return _own
    if _own.slots_taken == 0:
        stop_spark()
        return None
    if not same:
        changed = {key for key, _ in set(spark_settings.items()) ^ set(_own.settings.items())}
        raise ConfigurationError(f"a job runs on a Spark session with other settings: {', '.join(sorted(changed))}")
    return _own


def _start(spark_settings: Mapping[str, str], slots: int) -> _OwnSession:
    global _own
    settings, threads = session_settings(spark_settings, slots, os.environ, _is_submitted)
    variables = dict(_interpreter(settings, os.environ))
    if "spark.remote" not in settings and "SPARK_REMOTE" not in os.environ:
        variables["JAVA_HOME"] = str(find_java(os.environ))
        if settings.get("spark.master", "").startswith("local") and "SPARK_LOCAL_IP" not in os.environ:
            # the listen address of Spark's own page; no Spark setting exists for it
            variables["SPARK_LOCAL_IP"] = LOOPBACK
    log_to_stderr_by_default()
    _log.info("starting Spark on %s", settings.get("spark.master", "the master of its own configuration"))
    with chatter_filtered(), _environment(variables), interrupt_handler_kept():
        session = _build(warm_settings(settings, os.environ.get("PYSPARK_PYTHON", "")))
    own = _own = _OwnSession(SparkHandle(session), dict(spark_settings), threads)
    atexit.register(stop_spark)
    return own


def _build(settings: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        _launch_without_secrets(settings)
        return builder.getOrCreate()
    except Exception as error:  # noqa: BLE001 - whatever Spark raises becomes a reason
        raise OperationError(f"Spark could not be started: {short_reason(error)}") from None


def _launch_without_secrets(settings: Mapping[str, str]) -> None:
    """Start the JVM before the session if settings contain secrets.

    PySpark puts all settings on the JVM's command line, where every user of the host can read them. If the JVM runs
    already, the session sends its settings over a connection that only this process has.
    """
    if all(shown_value(key, value) == value for key, value in settings.items()) or "spark.remote" in settings:
        return
    from pyspark import SparkConf, SparkContext

    plain = SparkConf(loadDefaults=False)
    for key, value in settings.items():
        if shown_value(key, value) == value:
            plain.set(key, value)
    SparkContext._ensure_initialized(conf=plain)


def session_settings(
    spark_settings: Mapping[str, str],
    slots: int,
    environ: Mapping[str, str],
    is_submitted: Callable[[str], bool] = lambda _: False,
) -> tuple[dict[str, str], int | None]:
    """Return the settings for starting a session, and the number of threads if Penstock starts it on a local master.

    The master is the job's own setting, else that of Spark's files or `spark-submit`, else a local one. `is_submitted`
    returns whether `spark-submit`, under which this program runs, has a setting.
    """
    settings = {"spark.app.name": "penstock", **spark_settings}
    if "spark.remote" in settings or "SPARK_REMOTE" in environ:
        return settings, None
    submitted = "PYSPARK_GATEWAY_PORT" in environ
    for key, value in PROMPT.items():
        if not (is_submitted(key) if submitted else _spark_says(key, environ)):
            settings.setdefault(key, value)
    settings = quiet_settings(settings, environ)
    threads = None
    if "spark.master" not in settings and not _spark_names_master(environ):
        threads = slots + SPARE_THREADS
        settings["spark.master"] = f"local[{threads}]"
    if settings.get("spark.master", "").startswith("local"):
        # Processes outside this machine have no business with Spark's ports.
        settings.setdefault("spark.driver.bindAddress", LOOPBACK)
        settings.setdefault("spark.driver.host", LOOPBACK)
        settings.setdefault("spark.default.parallelism", str(max(2, os.cpu_count() or 2)))
    return settings, threads


def _spark_names_master(environ: Mapping[str, str]) -> bool:
    if "PYSPARK_GATEWAY_PORT" in environ or "--master" in environ.get("PYSPARK_SUBMIT_ARGS", ""):
        return True
    return _spark_says("spark.master", environ)


def _is_submitted(key: str) -> bool:
    """Return whether the JVM of `spark-submit`, which runs this program, has a setting."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # connects to the running JVM
    return SparkConf().contains(key)


def _spark_says(key: str, environ: Mapping[str, str]) -> bool:
    """Return whether Spark's own files or arguments contain a setting."""
    if f"{key}=" in environ.get("PYSPARK_SUBMIT_ARGS", ""):
        return True
    home = environ.get("SPARK_HOME")
    folder = environ.get("SPARK_CONF_DIR") or (home and os.path.join(home, "conf"))
    if not folder:
        return False
    try:
        lines = (Path(folder) / "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    return any(line.replace("=", " ").split()[:1] == [key] for line in lines)


def _interpreter(settings: Mapping[str, str], environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield PYSPARK_PYTHON unless it is set: the configured Python, else on a local master this program's own.

    This program's Python has the packages that the program needs.
    """
    if "PYSPARK_PYTHON" in environ:
        return
    if chosen := settings.get("spark.pyspark.python"):
        yield "PYSPARK_PYTHON", chosen
    elif settings.get("spark.master", "").startswith("local"):
        yield "PYSPARK_PYTHON", sys.executable


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def interrupt_handler_kept() -> Iterator[None]:
    """Keep the handler of Ctrl-C: PySpark's would kill every Spark job, whereas Penstock's jobs end in order."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


#: Slots of a local master that Penstock starts: workers that wait for data do not occupy a processor.
LOCAL_SLOTS: Final = 96


class SharedSpark:
    """A session's share of Spark.

    Args:
        configuration: the session's configuration.
        directory: for files that Spark's machines fetch as long as the session lives.

    Raises:
        PenstockError: if Spark cannot be started.
    """

    def __init__(self, configuration: Configuration, directory: Path) -> None:
        self._handle: SparkHandle = obtain_spark(configuration.to_dict(), LOCAL_SLOTS)
        self._directory = directory
        self._handle.ship_package()

    def environment(self) -> dict[str, str]:
        """Return the extra environment variables for a program's process to find this Spark.

        Over Spark Connect there is nothing to share: each process connects by itself.
        """
        if self._handle.is_connect:
            return {}
        context: Any = self._handle.session.sparkContext
        gateway = context._gateway
        return {
            SHARED_VARIABLE: str(self._directory),
            "PYSPARK_GATEWAY_PORT": str(gateway.java_parameters.port),
            "PYSPARK_GATEWAY_SECRET": str(gateway.java_parameters.auth_token),
            "PYSPARK_PYTHON": str(context.pythonExec),
        }

    def cancel(self, job_id: str) -> None:
        """Cancel the Spark jobs that a step-by-step job has left running."""
        self._handle.interrupt(f"penstock-{job_id}")

    def lives(self) -> bool:
        """Return whether its JVM runs; over Spark Connect, where this is unknown, return True."""
        if self._handle.is_connect:
            return True
        process = getattr(self._handle.session.sparkContext._gateway, "proc", None)
        return process is None or process.poll() is None

    def stop(self) -> None:
        """Stop Spark."""
        stop_spark()
