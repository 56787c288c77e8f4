"""Log lines beside statements and tables of results."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.drivers.listener import KEEPS, log_to_stderr_by_default


def limit_log() -> None:
    """Log warnings alone at a terminal: what jobs log would stand between the lines of statements.

    Two lines are for the person who waits: that Spark starts, and where the REST API is.
    """
    log_to_stderr_by_default()
    logging.getLogger("penstock").setLevel(logging.WARNING)
    for name in ("penstock.rest", "penstock.spark"):
        logging.getLogger(name).setLevel(logging.INFO)


@contextmanager
def hold_log() -> Iterator[None]:
    """Hold lines below the level of a warning until the block ends, so that no line stands within a table."""
    held: list[tuple[logging.Handler, logging.LogRecord]] = []
    filters: list[tuple[logging.Handler, Callable[[logging.LogRecord], bool]]] = []
    for handler in logging.getLogger("penstock").handlers:
        if not (handler.name or "").startswith(KEEPS):

            def passes(record: logging.LogRecord, handler: logging.Handler = handler) -> bool:
                if record.levelno < logging.WARNING:
                    held.append((handler, record))
                return record.levelno >= logging.WARNING

            handler.addFilter(passes)
            filters.append((handler, passes))
    try:
        yield
    finally:
        for handler, passes_ in filters:
            handler.removeFilter(passes_)
        for handler, record in held:
            handler.handle(record)
