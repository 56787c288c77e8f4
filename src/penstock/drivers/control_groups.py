"""The limits that a container gives this process: Linux's control groups, of both versions, read from files."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Final

#: Version 1 says "no limit" by a number of nearly this size.
_NO_LIMIT: Final = 1 << 60
_MOUNT: Final = Path("/sys/fs/cgroup")
_MEMBERSHIP: Final = Path("/proc/self/cgroup")


def memory_bytes_max(mount: Path = _MOUNT, membership: Path = _MEMBERSHIP) -> int:
    """How much memory (bytes) the process's groups may use; 0 where nothing limits it."""
    limits = [
        limit
        for directory in _directories("memory", mount, membership)
        for name in ("memory.max", "memory.limit_in_bytes")
        if (limit := _number(_read(directory / name))) is not None and 0 < limit < _NO_LIMIT
    ]
    return min(limits, default=0)


def cpu_cores_max(mount: Path = _MOUNT, membership: Path = _MEMBERSHIP) -> int | None:
    """How many cores, rounded up, the process's groups may use; None where nothing limits them."""
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
    """The directories of the process's group and of those that it is in, for one controller.

    A container often sees its own group as the root, so the root is looked at, too.
    """
    for line in _read(membership).splitlines():
        _, _, rest = line.partition(":")
        names, _, group = rest.partition(":")
        if not names:  # version 2, perhaps beside version 1
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
    """A file's text; empty where there is none, as on other systems than Linux."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _number(text: str) -> int | None:
    """Such as 4096; None for `max` and for nothing."""
    try:
        return int(text)
    except ValueError:
        return None
