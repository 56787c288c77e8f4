"""What Penstock has logged in a test; threads of libraries that an earlier test started may log beside it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def said(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING, logger: str = "penstock") -> list[str]:
    """The messages of a logger and of those below it, from a level on."""
    of_logger = (one for one in caplog.records if f"{one.name}.".startswith(f"{logger}."))
    return [one.getMessage() for one in of_logger if one.levelno >= level]
