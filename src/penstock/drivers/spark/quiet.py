"""Keeps Spark's own chatter off the user's terminal; its errors still show.

Most of it is logging, which `log4j2.properties` next to this file configures. In addition, the JVM itself prints a few
lines at the start, before any setting is read, and no flag turns these off. They go to the stderr that the JVM
inherits. So while the JVM starts, that stderr is a pipe, and a thread passes on everything else.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

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
