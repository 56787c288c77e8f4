"""Log lines next to statements and result tables."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.drivers.listener import KEEPS, log_to_stderr_by_default


def limit_log() -> None:
    """Log only warnings at a terminal, so that the logs of jobs do not appear between the lines of statements.

    Two lines remain, for the user who waits: that Spark starts, and the address of the REST API.
    """
    log_to_stderr_by_default()
    logging.getLogger("penstock").setLevel(logging.WARNING)
    for name in ("penstock.rest", "penstock.spark"):
        logging.getLogger(name).setLevel(logging.INFO)


@contextmanager
def hold_log() -> Iterator[None]:
    """Hold back lines below the level of a warning until the block ends, so that they do not appear inside a table."""
    buffered: list[tuple[logging.Handler, logging.LogRecord]] = []
    filters: list[tuple[logging.Handler, Callable[[logging.LogRecord], bool]]] = []
    for handler in logging.getLogger("penstock").handlers:
        if not (handler.name or "").startswith(KEEPS):

            def passes(record: logging.LogRecord, handler: logging.Handler = handler) -> bool:
                if record.levelno < logging.WARNING:
                    buffered.append((handler, record))
                return record.levelno >= logging.WARNING

            handler.addFilter(passes)
            filters.append((handler, passes))
    try:
        yield
    finally:
        for handler, passes_ in filters:
            handler.removeFilter(passes_)
        for handler, record in buffered:
            handler.handle(record)
