"""A temporary directory that its process removes or, if that is killed, the next process that creates such a directory.

The process holds a lock on a file in it for as long as it lives (`filesystem.create_held`). Process ids would not do,
because containers may share a disk.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path
from typing import Final

from penstock.connectors.file.filesystem import create_held, remove_unless_held

_HELD: Final = ".held"


class HeldDirectory:
    """A temporary directory below `parent` (None: the system's temporary directory). Call `remove` at the end.

    Directories with the same prefix whose processes have ended are removed first.
    """

    def __init__(self, prefix: str, parent: Path | None = None) -> None:
        parent = parent or Path(tempfile.gettempdir())
        for lock_file in parent.glob(f"{prefix}*/{_HELD}"):
            if remove_unless_held(str(lock_file)):
                shutil.rmtree(lock_file.parent, ignore_errors=True)
        while True:
            directory = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            #: empty
            self.path = directory / "content"
            try:
                self._file = create_held(str(directory / _HELD))
                self.path.mkdir()
                return
            except FileNotFoundError:
                continue  # another process removed it between creation and lock

    def remove(self) -> None:
        """Remove the directory and its content."""
        shutil.rmtree(self.path.parent, ignore_errors=True)
        self._file.close()


def directory_of_this_process(prefix: str) -> str:
    """Return a temporary directory that exists as long as this process."""
    directory = HeldDirectory(prefix)
    atexit.register(directory.remove)
    return str(directory.path)
