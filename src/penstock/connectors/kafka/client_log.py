"""Where the lines of Kafka's client libraries go: a logger that passes on a kind of line once a minute.

librdkafka logs each attempt to connect, ten times a second, and aiokafka each second. The connector has its own lines
for brokers that are away.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable
from typing import Final

#: How often (s) a line of one kind about one broker is passed on.
INTERVAL_S: Final = 60.0
#: More kinds than this are forgotten together, so that they take no memory.
_KINDS_MAX: Final = 1_000
#: The parts that differ among lines of a kind: the number of the client, and figures such as durations.
_VARYING: Final = re.compile(r"\[rdkafka#[^]]*\]|\([^)]*\)|\d+(?:\.\d+)?(?:ms|s)\b")


class RepeatedLines(logging.Filter):
    """Passes on a line unless one of its kind came within the last minute, and says how many were left out.

    Args:
        clock: the time in seconds.
        thread_name: lines of threads with another name all pass; None to check the lines of all threads.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, thread_name: str | None = None) -> None:
        super().__init__()
        self._clock = clock
        self._thread_name = thread_name
        self._seen: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """See `logging.Filter`."""
        if self._thread_name is not None and record.threadName != self._thread_name:
            return True
        text = record.getMessage()
        kind, now = _VARYING.sub("", text), self._clock()
        since, left_out = self._seen.get(kind, (None, 0))
        if since is not None and now - since < INTERVAL_S:
            self._seen[kind] = since, left_out + 1
            return False
        if len(self._seen) >= _KINDS_MAX:
            self._seen.clear()
        self._seen[kind] = now, 0
        if left_out:
            record.msg, record.args = f"{text} [{left_out} more lines like this since the last one]", None
        return True


def limit_lines(logger_names: Iterable[str], thread_name: str) -> None:
    """Let loggers of a library pass on a kind of line once a minute, if it is of threads of this name."""
    for name in logger_names:
        logger = logging.getLogger(name)
        if not any(isinstance(one, RepeatedLines) for one in logger.filters):
            logger.addFilter(RepeatedLines(thread_name=thread_name))


def client_log(name: str, level: int = logging.NOTSET) -> logging.Logger:
    """The logger for clients of a kind, below the connector's own."""
    found = logging.getLogger(f"penstock.connectors.kafka.{name}")
    found.setLevel(level)
    if not any(isinstance(one, RepeatedLines) for one in found.filters):
        found.addFilter(RepeatedLines())
    return found
