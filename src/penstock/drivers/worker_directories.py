"""Directories of a worker's process on its machine's disk. A process that is killed leaves its own behind."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

PREFIX = "penstock-state-"


class WorkerDirectories:
    """Makes them below `parent` (None: the machine's directory of temporary files), for one job.

    What processes of the job that are no more have left there is removed first.
    """

    def __init__(self, parent: str | None, job_id: str) -> None:
        self.parent = Path(parent or tempfile.gettempdir())
        self._prefix = f"{PREFIX}{job_id}-"
        remove_left_behind(self.parent, self._prefix)

    def make(self) -> Path:
        """A new one, empty; whoever asked for it removes it."""
        self.parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f"{self._prefix}{os.getpid()}-", dir=self.parent))


def remove_left_behind(parent: Path, prefix: str) -> None:
    """Remove the directories of processes that are no more."""
    for directory in parent.glob(f"{prefix}*"):
        process_id = directory.name.removeprefix(prefix).partition("-")[0]
        if process_id.isdigit() and not _is_alive(int(process_id)):
            shutil.rmtree(directory, ignore_errors=True)


def _is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
