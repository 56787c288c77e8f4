"""The limits that a container sets for this process: Linux control groups, versions 1 and 2, read from files."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Final

#: Version 1 represents "no limit" by a number of about this size.
_NO_LIMIT: Final = 1 << 60
_MOUNT: Final = Path("/sys/fs/cgroup")
_MEMBERSHIP: Final = Path("/proc/self/cgroup")


def memory_bytes_max(mount: Path = _MOUNT, membership: Path = _MEMBERSHIP) -> int:
    """Return the memory limit (bytes) of the process's groups; 0 without a limit."""
    limits = [
        limit
        for directory in _directories("memory", mount, membership)
        for name in ("memory.max", "memory.limit_in_bytes")
        if (limit := _number(_read(directory / name))) is not None and 0 < limit < _NO_LIMIT
    ]
    return min(limits, default=0)


def cpu_cores_max(mount: Path = _MOUNT, membership: Path = _MEMBERSHIP) -> int | None:
    """Return the CPU limit of the process's groups in cores, rounded up; None without a limit."""
    limits = []
    for directory in _directories("cpu", mount, membership):
        quota, _, period = _read(directory / "cpu.max").partition(" ")
        if not quota:
            quota, period = _read(directory / "cpu.cfs_quota_us"), _read(directory / "cpu.cfs_period_us")
        quota_us, period_us = _number(quota), _number(period)
        if quota_us is not None and period_us and quota_us > 0:
            limits.append(math.ceil(quota_us / period_us))
    return min(limits, default=None)


def _directories(controller: str, mount: Path, membership: Path) -> Iterator[Path]:
    """Yield the directories of the process's group and of its ancestors for one controller.

    A container often sees its own group as the root, so the root is included.
    """
    for line in _read(membership).splitlines():
        _, _, rest = line.partition(":")
        names, _, group = rest.partition(":")
        if not names:  # version 2, perhaps alongside version 1
            roots = [mount, mount / "unified"]
        elif controller in names.split(","):
            roots = [mount / controller, mount / names]
        else:
            continue
        for root in dict.fromkeys(roots):
            directory = root / group.lstrip("/")
            yield directory
            while directory != root and root in directory.parents:
                directory = directory.parent
                yield directory


def _read(path: Path) -> str:
    """Return a file's text; empty if the file does not exist, as on systems other than Linux."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _number(text: str) -> int | None:
    """Parse a number such as 4096; return None for `max` and for empty text."""
    try:
        return int(text)
    except ValueError:
        return None
