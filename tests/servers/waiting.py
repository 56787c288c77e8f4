"""Waiting for what a server does in its own time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

WAIT_S: Final = 60


def await_true(condition: Callable[[], bool], complaint: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, complaint
        time.sleep(0.05)
