"""Prepares a process that runs thousands of small jobs: what each of them costs beside its work is made small."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from tests.class_archive import ARCHIVE, options

_MEMORY: Final = Path("/dev/shm")
#: how much room (bytes) it has to have; a container may have 64 MiB
_ROOM: Final = 4 << 30


def prepare_many_runs() -> None:
    """Keep the files of jobs in memory, start JVMs quickly, and let the garbage collector pass over what stays.

    Half of the time of a job of a hundred rows on RocksDB goes into waiting until a disk has its files.
    """
    os.environ.setdefault("SPARK_SUBMIT_OPTS", options(ARCHIVE))
    keep_temporary_files_in_memory()
    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)


def keep_temporary_files_in_memory() -> None:
    """Let this process and those it starts have their temporary files in memory, where there is room and no other."""
    if "TMPDIR" not in os.environ and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM:
        os.environ["TMPDIR"] = str(_MEMORY)
        tempfile.tempdir = None
