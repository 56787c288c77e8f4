"""Penstock runs on Linux and macOS: what only one kernel has is guarded, and in few modules."""

from __future__ import annotations

import ast
import os
import re
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "penstock"

#: What Python for macOS lacks, by module; `*` stands for any end of a name.
LINUX_ONLY = {
    "os": (
        "O_DIRECT", "O_PATH", "O_TMPFILE", "SCHED_*", "copy_file_range", "eventfd*", "getrandom", "memfd_create",
        "pidfd_open", "pipe2", "posix_fadvise", "posix_fallocate", "sched_*", "setns", "setresuid", "splice",
        "timerfd_*", "unshare",
    ),
    "resource": ("prlimit",),
    "select": ("EPOLL*", "epoll"),
    "signal": ("SIGPWR", "SIGRTMAX", "SIGRTMIN", "SIGSTKFLT", "pidfd_send_signal", "sigtimedwait", "sigwaitinfo"),
    "socket": ("AF_NETLINK", "AF_PACKET", "AF_VSOCK", "SOCK_CLOEXEC", "SOCK_NONBLOCK", "SO_PEERCRED", "TCP_*IDLE*",
               "TCP_QUICKACK", "TCP_USER_TIMEOUT"),
    "time": ("CLOCK_BOOTTIME", "CLOCK_TAI", "clock_settime"),
}  # fmt: skip
MODULES = {module.__name__: module for module in (os, resource, select, signal, socket, time)}
#: Folders that only Linux has.
FOLDERS = ("/proc", "/sys/", "/dev/shm")

#: Modules that use some of it, each with the guard that makes it work elsewhere.
GUARDED = {
    "drivers/inspection.py": "hasattr for the processors of this process; a file that is missing reads as empty",
    "drivers/spark/sockets.py": "a boot id that cannot be read counts as another machine's",
    "drivers/simulation/worker.py": "os.access tells whether there is a file system in memory",
    "state/rocksdb/backend.py": "hasattr",
}


def is_linux_only(module: str, name: str) -> bool:
    names = LINUX_ONLY.get(module, ())
    return any(name == known or ("*" in known and Path(name).match(known)) for known in names)


#: Quicker than the syntax tree: what a source without any of this need not be parsed for.
ANY_NAME = re.compile("|".join([*(n.strip("*").split("*")[0] for ns in LINUX_ONLY.values() for n in ns), *FOLDERS]))


def find_linux_only(source: str) -> Iterator[str]:
    """What a module uses that only Linux has: attributes, imported names, and folders."""
    for node in ast.walk(ast.parse(source)) if ANY_NAME.search(source) else ():
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if is_linux_only(node.value.id, node.attr):
                yield f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.ImportFrom) and node.module in LINUX_ONLY:
            yield from (f"{node.module}.{name.name}" for name in node.names if is_linux_only(node.module, name.name))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(FOLDERS):
            yield node.value


def test_only_these_modules_use_what_only_linux_has() -> None:
    using = {
        str(path.relative_to(SRC)): sorted(set(find_linux_only(path.read_text()))) for path in sorted(SRC.rglob("*.py"))
    }
    assert {path: names for path, names in using.items() if names and path not in GUARDED} == {}
    assert {path for path, names in using.items() if names} == set(GUARDED)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import os\nos.sched_getaffinity(0)", ["os.sched_getaffinity"]),
        ("from os import pidfd_open", ["os.pidfd_open"]),
        ("import select\nselect.epoll()", ["select.epoll"]),
        ("open('/proc/self/stat')", ["/proc/self/stat"]),
        ("import os\nos.kill(1, 9)", []),
    ],
)
def test_the_search_sees(source: str, names: list[str]) -> None:
    assert list(find_linux_only(source)) == names


def test_the_table_names_what_exists() -> None:
    """A misspelt name would let everything pass."""
    if sys.platform != "linux":
        pytest.skip("only Linux has all of it")
    newer = {"timerfd_*", "setns", "unshare"}  # Python 3.12 and 3.13 brought these
    for module, names in LINUX_ONLY.items():
        for name in set(names) - newer:
            assert any(is_linux_only(module, known) for known in dir(MODULES[module]) if Path(known).match(name)), name


def test_without_linux_calls_the_figures_of_a_worker_remain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As on macOS: no affinity, no groups, no preallocation."""
    from penstock.drivers import inspection

    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    missing = tmp_path / "missing"
    assert inspection.memory_bytes_max(missing, missing) == 0
    assert inspection.cpu_cores_max(missing, missing) is None
