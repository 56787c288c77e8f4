"""The pages of jobs, registered by higher layers, which drivers cannot import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

#: Return the address of a job's page by the job's id, or None while they serve none. Called in any thread.
pages: Final[list[Callable[[str], str | None]]] = []


def find_job_page(job_id: str) -> str | None:
    """Return the address of a job's page; None if nothing serves one."""
    return next((address for page in pages if (address := page(job_id)) is not None), None)
