"""A POSIX file system in memory that loses, in a power cut, what nobody has synced.

All processes see the page cache. On the device are the bytes of a file as they were when the file was synced last, and
the names in a directory as they were when the directory was. After a power cut there is what the device had, and by
chance a part of the rest: any of the changes of names (made, renamed, linked, removed), independently of one another,
and of bytes that were not synced any prefix. A rename is one change, as in all file systems with a journal.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.base.errors import MissingPathError

#: The directory of paths without a slash.
ROOT: Final = ""
#: How much of what was not synced survives: nothing, a part by chance, all.
SHARES: Final = (0.0, 0.5, 0.5, 1.0)


@dataclass(eq=False, slots=True)
class Node:
    """A file, whatever it is called, or a directory."""

    is_directory: bool = False
    data: bytes = b""
    #: what the device has
    synced: bytes = b""


@dataclass(eq=False, slots=True)
class Change:
    """Of names, not on the device yet: `old` is gone, `new` is there; both in a rename."""

    node: Node
    old: str | None = None
    new: str | None = None

    def directories(self) -> set[str]:
        """Whose sync brings it to the device."""
        return {directory_of(path) for path in (self.old, self.new) if path is not None}


def directory_of(path: str) -> str:
    """The directory in which a path is a name."""
    return path.rpartition("/")[0]


class PageCache:
    """The files and directories. Paths are relative to ROOT, which is always there."""

    def __init__(self) -> None:
        #: the bytes of all files as processes see them; change it by the methods only
        self.files: dict[str, bytes] = {}
        #: called before each step that changes anything, or syncs; may raise
        self.before_step: Callable[[], None] = lambda: None
        #: whether there is no power: nothing changes any more
        self.is_off = False
        self._nodes: dict[str, Node] = {}
        self._device: dict[str, Node] = {}
        self._changes: dict[int, Change] = {}
        self._by_directory: dict[str, list[int]] = {}
        self._count = 0

    # --- what processes do ---------------------------------------------------------------------------------------

    def is_directory(self, path: str) -> bool:
        """Whether there is a directory of that path."""
        node = self._nodes.get(path)
        return path == ROOT or (node is not None and node.is_directory)

    def make_directory(self, path: str) -> None:
        """Make a directory in one that exists, unless it is there."""
        if self._begin() and not self.is_directory(path):
            self._nodes[path] = Node(is_directory=True)
            self._note(Change(self._nodes[path], new=path))

    def remove_directory(self, path: str) -> None:
        """Remove a directory if it is empty, and there."""
        if self._begin() and self.is_directory(path) and not any(other.startswith(f"{path}/") for other in self._nodes):
            self._note(Change(self._nodes.pop(path), old=path))

    def write(self, path: str, data: bytes) -> None:
        """Write a file, which is made when it is not there; its bytes are in the page cache.

        Raises:
            MissingPathError: if there is no directory for it.
        """
        if not self._begin():
            return
        if not self.is_directory(directory_of(path)):
            raise MissingPathError(f"there is no directory for {path}")
        node = self._nodes.get(path)
        if node is None:
            node = self._nodes[path] = Node()
            self._note(Change(node, new=path))
        node.data = self.files[path] = data

    def sync_file(self, path: str) -> None:
        """Let the bytes of a file reach the device."""
        if self._begin():
            node = self._nodes[path]
            node.synced = node.data

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, in the place of the file that has it, in one step."""
        if self._begin():
            self._nodes[new] = node = self._nodes.pop(old)
            data = self.files.pop(old)
            self.files[new] = data
            self._note(Change(node, old, new))

    def link(self, old: str, new: str) -> None:
        """Give a file one more name, which no file has."""
        if self._begin():
            self._nodes[new] = node = self._nodes[old]
            self.files[new] = self.files[old]
            self._note(Change(node, new=new))

    def unlink(self, path: str) -> None:
        """Take a name away from a file; nothing happens when it is not there."""
        if self._begin() and path in self.files:
            del self.files[path]
            self._note(Change(self._nodes.pop(path), old=path))

    def sync_directory(self, path: str) -> None:
        """Let all names in a directory reach the device, and those that are gone leave it."""
        if self._begin():
            for number in self._by_directory.pop(path, ()):
                change = self._changes.pop(number, None)
                if change is not None:
                    self._overtake(change, number)
                    self._apply(change)

    def is_durable(self, path: str) -> bool:
        """Whether a file is there, and would be after a power cut, whole."""
        node = self._nodes.get(path)
        return node is not None and self._device.get(path) is node and node.data == node.synced

    def below(self, directory: str) -> list[str]:
        """The files in a directory, and in those in it."""
        return [path for path in self.files if path.startswith(f"{directory}/")]

    def directories_in(self, directory: str) -> list[str]:
        """The paths of the directories in one."""
        return [path for path, node in self._nodes.items() if node.is_directory and directory_of(path) == directory]

    def _begin(self) -> bool:
        """Whether a step takes place: with the power, the process goes that would take it."""
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
        """A rename reaches the device with one of its directories: what it has changed in the other one is old now."""
        if change.old is None or change.new is None or directory_of(change.old) == directory_of(change.new):
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
        """Let all there is reach the device, as it does in time."""
        for change in self._changes.values():
            self._apply(change)
        for node in self._nodes.values():
            node.synced = node.data
        self._changes.clear()
        self._by_directory.clear()

    def lose_power(self, chance: random.Random) -> None:
        """From now on there is what the device has, and of the rest what chance has brought there before."""
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
        """Whether all directories above are there."""
        while (path := directory_of(path)) != ROOT:
            node = self._device.get(path)
            if node is None or not node.is_directory:
                return False
        return True

    def _torn(self, node: Node, share: float, chance: random.Random) -> bytes:
        """Bytes of a file that was changed since it was synced: those of then, or the first ones of now."""
        fate = chance.random()
        if fate >= share:
            return node.synced
        if fate < share / 2:
            return node.data
        kept = len(node.synced) if node.data.startswith(node.synced) else 0
        return node.data[: chance.randint(kept, len(node.data))]


def make_directories(cache: PageCache, path: str) -> None:
    """As `durable_files.make_directories`: make a directory and all that are missing above it, for good."""
    missing = []
    while not cache.is_directory(path):
        missing.append(path)
        path = directory_of(path)
    for directory in reversed(missing):
        cache.make_directory(directory)
        cache.sync_directory(directory_of(directory))
