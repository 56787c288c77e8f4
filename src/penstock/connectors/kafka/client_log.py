"""Logging of Kafka's client libraries: a logger passes on each kind of line once a minute.

librdkafka logs every attempt to connect, ten times a second, and aiokafka every second. The connector logs unavailable
brokers itself.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable
from typing import Final

#: The interval (s) between lines of one kind about one broker.
INTERVAL_S: Final = 60.0
#: Above this number all kinds are forgotten together, to bound memory.
_KINDS_MAX: Final = 1_000
#: The parts that vary among lines of a kind: the number of the client, and figures such as durations.
_VARYING: Final = re.compile(r"\[rdkafka#[^]]*\]|\([^)]*\)|\d+(?:\.\d+)?(?:ms|s)\b")


class RepeatedLines(logging.Filter):
    """Passes on a line unless one of its kind came within the last minute, with the number of suppressed lines.

    Args:
        clock: returns the time in seconds.
        thread_name: filter only the lines of threads with this name; None to filter all lines.
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
    """Limit a library's loggers to one line of each kind per minute, for threads with this name."""
    for name in logger_names:
        logger = logging.getLogger(name)
        if not any(isinstance(log_filter, RepeatedLines) for log_filter in logger.filters):
            logger.addFilter(RepeatedLines(thread_name=thread_name))


def client_log(name: str, level: int = logging.NOTSET) -> logging.Logger:
    """Return the logger for a kind of client, below the connector's own."""
    logger = logging.getLogger(f"penstock.connectors.kafka.{name}")
    logger.setLevel(level)
    if not any(isinstance(log_filter, RepeatedLines) for log_filter in logger.filters):
        logger.addFilter(RepeatedLines())
    return logger
