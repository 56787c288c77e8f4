"""What a directory holds after a power cut: whatever was synced, and of the rest as much as chance has it.

A recorder watches the `fsync` calls of this process. A file's bytes survive from the `fsync` of the file on, the names
in a directory from that of the directory on. A rename is one step, as in all file systems with a journal: where its
target survives, its source is gone, and the other way round.
"""

from __future__ import annotations

import os
import random
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from unittest import mock

_MIX: Final = (0.0, 0.5, 1.0)


@dataclass
class _Node:
    """A file or directory, whatever it is called."""

    descriptor: int
    is_directory: bool
    #: what the device has
    data: bytes = b""
    names: dict[str, int] = field(default_factory=dict)


class PowerCut:
    """Records what reaches the device below a directory; use `recording`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._nodes: dict[int, _Node] = {}
        self._renames: list[tuple[int, str, int, str, int]] = []
        #: called after each call that has reached the device
        self.on_sync: Callable[[], None] = lambda: None
        self._lock = threading.RLock()
        self._sync = os.fsync
        self._rename = os.replace
        self.syncs = 0
        self._add(str(root))

    def _add(self, path: str) -> int | None:
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        status = os.fstat(descriptor)
        if status.st_ino in self._nodes:
            os.close(descriptor)
        else:
            # As long as it is open, its number is not given to another one.
            self._nodes[status.st_ino] = _Node(descriptor, stat.S_ISDIR(status.st_mode))
        return status.st_ino

    def fsync(self, descriptor: int) -> None:
        """In the place of `os.fsync`."""
        self._sync(descriptor)
        with self._lock:
            self._on_fsync(descriptor)

    def _on_fsync(self, descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if not f"{path}/".startswith(f"{self._root}/"):
            return
        number = self._add(path)
        if number is None:
            return
        node = self._nodes[number]
        if node.is_directory:
            node.names = self._live(path)
            for rename in [rename for rename in self._renames if number in (rename[0], rename[2])]:
                self._renames.remove(rename)
                self._apply_elsewhere(number, *rename)
        else:
            node.data = _read(node.descriptor)
        self.syncs += 1
        self.on_sync()

    def _apply_elsewhere(self, synced: int, source: int, old: str, target: int, new: str, moved: int) -> None:
        if source != synced and self._nodes[source].names.get(old) == moved:
            del self._nodes[source].names[old]
        if target != synced:
            self._nodes[target].names[new] = moved

    def replace(self, source: str, target: str) -> None:
        """In the place of `os.replace`."""
        with self._lock:
            self._on_replace(source, target)

    def _on_replace(self, source: str, target: str) -> None:
        moved = self._add(source)
        directories = [self._add(os.path.dirname(path)) for path in (source, target)]
        self._rename(source, target)
        if moved is not None and None not in directories and f"{target}".startswith(f"{self._root}/"):
            of_source, of_target = (number for number in directories if number is not None)
            names = os.path.basename(source), os.path.basename(target)
            self._renames.append((of_source, names[0], of_target, names[1], moved))

    def _live(self, path: str) -> dict[str, int]:
        found = {name: self._add(os.path.join(path, name)) for name in os.listdir(path)}
        return {name: number for name, number in found.items() if number is not None}

    def image(self, to: Path, chance: random.Random | None = None) -> None:
        """Write what is there after a cut at this moment; without `chance` nothing that was not synced."""
        with self._lock:
            number = self._add(str(self._root))
            assert number is not None
            self._write(number, str(self._root), to, chance)

    def _write(self, number: int, live_path: str | None, to: Path, chance: random.Random | None) -> None:
        node = self._nodes[number]
        if not node.is_directory:
            to.write_bytes(node.data if chance is None else self._data(node, chance))
            return
        to.mkdir()
        live = self._live(live_path) if live_path is not None and os.path.isdir(live_path) else {}
        names = dict(node.names)
        if chance is not None:
            share = chance.choice(_MIX)
            moved = {rename[-1] for rename in self._renames}
            for name in sorted({*names, *live}):
                if {names.get(name), live.get(name)} & moved or chance.random() >= share:
                    continue
                if name in live:
                    names[name] = live[name]
                else:
                    del names[name]
        for name, child in names.items():
            below = os.path.join(live_path, name) if live_path is not None and live.get(name) == child else None
            self._write(child, below, to / name, chance)

    def _data(self, node: _Node, chance: random.Random) -> bytes:
        now = _read(node.descriptor)
        return node.data if now == node.data else now[: chance.randint(len(node.data), max(len(node.data), len(now)))]

    def close(self) -> None:
        """Let go of all files."""
        for node in self._nodes.values():
            os.close(node.descriptor)


def _read(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


@contextmanager
def recording(root: Path) -> Iterator[PowerCut]:
    """Watch a directory that is empty, or all of whose content has long reached the device."""
    recorder = PowerCut(root)
    try:
        with mock.patch("os.fsync", recorder.fsync), mock.patch("os.replace", recorder.replace):
            yield recorder
    finally:
        recorder.close()
