"""An in-memory POSIX file system that loses unsynced changes in a power cut.

All processes see the page cache. The device has each file's bytes as of the last sync of the file, and each directory's
names as of the last sync of the directory. After a power cut, the device's contents remain, plus a random part of the
rest: any of the name changes (create, rename, link, remove), independently of one another, and any prefix of unsynced
bytes. A rename is a single change, as in all journaling file systems.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.base.errors import MissingPathError

#: The directory of paths without a slash.
ROOT: Final = ""
#: How much of the unsynced changes survives: nothing, a random part, everything.
SHARES: Final = (0.0, 0.5, 0.5, 1.0)


@dataclass(eq=False, slots=True)
class Node:
    """A file, under any number of names, or a directory."""

    is_directory: bool = False
    data: bytes = b""
    #: the bytes on the device
    synced: bytes = b""


@dataclass(eq=False, slots=True)
class Change:
    """A name change not yet on the device: `old` is removed, `new` is added; a rename has both."""

    node: Node
    old: str | None = None
    new: str | None = None

    def directories(self) -> set[str]:
        """Return the directories whose sync writes the change to the device."""
        return {get_directory(path) for path in (self.old, self.new) if path is not None}


def get_directory(path: str) -> str:
    """Return the directory that contains a path."""
    return path.rpartition("/")[0]


class PageCache:
    """The files and directories. Paths are relative to ROOT, which always exists."""

    def __init__(self) -> None:
        #: the bytes of all files as processes see them; change it only through the methods
        self.files: dict[str, bytes] = {}
        #: called before each step that changes or syncs anything; may raise
        self.before_step: Callable[[], None] = lambda: None
        #: whether the power is out: nothing changes any more
        self.is_off = False
        self._nodes: dict[str, Node] = {}
        self._device: dict[str, Node] = {}
        self._changes: dict[int, Change] = {}
        self._by_directory: dict[str, list[int]] = {}
        self._count = 0

    # --- what processes do ---------------------------------------------------------------------------------------

    def is_directory(self, path: str) -> bool:
        """Return whether the path is a directory."""
        node = self._nodes.get(path)
        return path == ROOT or (node is not None and node.is_directory)

    def make_directory(self, path: str) -> None:
        """Create a directory in an existing one, unless it exists."""
        if self._begin() and not self.is_directory(path):
            self._nodes[path] = Node(is_directory=True)
            self._note(Change(self._nodes[path], new=path))

    def remove_directory(self, path: str) -> None:
        """Remove a directory if it exists and is empty."""
        if self._begin() and self.is_directory(path) and not any(other.startswith(f"{path}/") for other in self._nodes):
            self._note(Change(self._nodes.pop(path), old=path))

    def write(self, path: str, data: bytes) -> None:
        """Write a file, creating it if necessary; its bytes are in the page cache.

        Raises:
            MissingPathError: if its directory does not exist.
        """
        if not self._begin():
            return
        if not self.is_directory(get_directory(path)):
            raise MissingPathError(f"there is no directory for {path}")
        node = self._nodes.get(path)
        if node is None:
            node = self._nodes[path] = Node()
            self._note(Change(node, new=path))
        node.data = self.files[path] = data

    def sync_file(self, path: str) -> None:
        """Write a file's bytes to the device."""
        if self._begin():
            node = self._nodes[path]
            node.synced = node.data

    def rename(self, old: str, new: str) -> None:
        """Rename a file in one step, replacing any file of the new name."""
        if self._begin():
            self._nodes[new] = node = self._nodes.pop(old)
            data = self.files.pop(old)
            self.files[new] = data
            self._note(Change(node, old, new))

    def link(self, old: str, new: str) -> None:
        """Give a file an additional name, which must be unused."""
        if self._begin():
            self._nodes[new] = node = self._nodes[old]
            self.files[new] = self.files[old]
            self._note(Change(node, new=new))

    def unlink(self, path: str) -> None:
        """Remove a file's name; do nothing if it does not exist."""
        if self._begin() and path in self.files:
            del self.files[path]
            self._note(Change(self._nodes.pop(path), old=path))

    def sync_directory(self, path: str) -> None:
        """Write a directory's names to the device, and remove deleted ones from it."""
        if self._begin():
            for number in self._by_directory.pop(path, ()):
                change = self._changes.pop(number, None)
                if change is not None:
                    self._overtake(change, number)
                    self._apply(change)

    def is_durable(self, path: str) -> bool:
        """Return whether a file exists, and would survive a power cut completely."""
        node = self._nodes.get(path)
        return node is not None and self._device.get(path) is node and node.data == node.synced

    def below(self, directory: str) -> list[str]:
        """Return the files in a directory and below it."""
        return [path for path in self.files if path.startswith(f"{directory}/")]

    def list_directories(self, directory: str) -> list[str]:
        """Return the paths of the directories directly in a directory."""
        return [path for path, node in self._nodes.items() if node.is_directory and get_directory(path) == directory]

    def _begin(self) -> bool:
        """Return whether a step takes place; in a power cut, the process that would take it ends."""
        if not self.is_off:
            self.before_step()
        return not self.is_off

    # --- the device ----------------------------------------------------------------------------------------------

    def _note(self, change: Change) -> None:
        self._count += 1
        self._changes[self._count] = change
        for directory in change.directories():
            self._by_directory.setdefault(directory, []).append(self._count)

    def _overtake(self, change: Change, number: int) -> None:
        """Apply earlier changes to the names of a cross-directory rename: syncing one directory applies it in both."""
        if change.old is None or change.new is None or get_directory(change.old) == get_directory(change.new):
            return
        names = {change.old, change.new}
        for directory in change.directories():
            for earlier in [other for other in self._by_directory.get(directory, ()) if other < number]:
                of_name = self._changes.get(earlier)
                if of_name is not None and names & {of_name.old, of_name.new}:
                    self._apply(self._changes.pop(earlier))

    def _apply(self, change: Change) -> None:
        device = self._device
        if change.old is not None and device.get(change.old) is change.node:
            del device[change.old]
            if change.node.is_directory:
                for path in [path for path in device if path.startswith(f"{change.old}/")]:
                    del device[path]
        if change.new is not None:
            device[change.new] = change.node

    def sync_all(self) -> None:
        """Write everything to the device, as eventually happens."""
        for change in self._changes.values():
            self._apply(change)
        for node in self._nodes.values():
            node.synced = node.data
        self._changes.clear()
        self._by_directory.clear()

    def lose_power(self, chance: random.Random) -> None:
        """Reduce the contents to the device's, plus a random part of the unsynced changes."""
        names, contents = chance.choice(SHARES), chance.choice(SHARES)
        for change in self._changes.values():
            if chance.random() < names:
                self._apply(change)
        self._nodes = {path: node for path, node in self._device.items() if self._is_reached(path)}
        self._device = dict(self._nodes)
        for node in self._nodes.values():
            if node.data != node.synced:
                node.data = node.synced = self._torn(node, contents, chance)
        self.files = {path: node.data for path, node in self._nodes.items() if not node.is_directory}
        self._changes.clear()
        self._by_directory.clear()
        self.is_off = True

    def _is_reached(self, path: str) -> bool:
        """Return whether all parent directories are on the device."""
        while (path := get_directory(path)) != ROOT:
            node = self._device.get(path)
            if node is None or not node.is_directory:
                return False
        return True

    def _torn(self, node: Node, share: float, chance: random.Random) -> bytes:
        """Return the surviving bytes of an unsynced file: the synced ones, or a prefix of the current ones."""
        fate = chance.random()
        if fate >= share:
            return node.synced
        if fate < share / 2:
            return node.data
        synced_size = len(node.synced) if node.data.startswith(node.synced) else 0
        return node.data[: chance.randint(synced_size, len(node.data))]


def make_directories(cache: PageCache, path: str) -> None:
    """Create a directory and its missing parents durably, like `durable_files.make_directories`."""
    missing = []
    while not cache.is_directory(path):
        missing.append(path)
        path = get_directory(path)
    for directory in reversed(missing):
        cache.make_directory(directory)
        cache.sync_directory(get_directory(directory))
