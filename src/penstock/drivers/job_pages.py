"""Where the pages of jobs are: layers above the drivers, which these cannot import, say so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

#: Give the address of the page of a job by its id; None while they serve none. Any thread calls them.
pages: Final[list[Callable[[str], str | None]]] = []


def page_of(job_id: str) -> str | None:
    """The address of the page of a job; None when nobody serves one."""
    return next((address for page in pages if (address := page(job_id)) is not None), None)
