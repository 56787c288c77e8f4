"""The file system of a simulation, which loses unsynced changes in a power cut, and the invariants of its files.

`PageCache` is an in-memory POSIX file system. All processes see the page cache. The device has each file's bytes as of
the last sync of the file, and each directory's names as of the last sync of the directory. After a power cut, the
device's contents remain, plus a random part of the rest: any of the name changes (create, rename, link, remove),
independently of one another, and any prefix of unsynced bytes. A rename is a single change, as in all journaling file
systems.

`Disk` holds the files of all jobs and savepoints of a simulation, by path, and checks their invariants.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from penstock.base.errors import CheckpointError, MissingPathError
from penstock.storage.leadership import (
    FOUND_PREFIX,
    MARK_PREFIX,
    MARKS_DIRECTORY,
    MASTER_PREFIX,
    Found,
    Left,
    LeftByJobs,
    checkpoint_counts,
    decode_found,
    decode_mark,
    mark_counts,
    of_name,
)
from penstock.storage.metadata import (
    REVOKED,
    CheckpointMetadata,
    MissingMetadataError,
    StateFile,
    check_file,
    decode_metadata,
)

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


METADATA = "_metadata"
PARTIAL = "_metadata.part"
#: The suffix of other files while they are being written.
PART: Final = ".part"
#: The directory requested for the savepoints of all jobs.
SAVEPOINTS = "savepoints"
#: The directory with the numbers of the job masters.
LEADERS: Final = "leaders"


class Disk(PageCache):
    """Files by path. A savepoint is a directory below SAVEPOINTS, and complete once it has metadata."""

    def __init__(self) -> None:
        super().__init__()
        self.violations: list[str] = []
        #: losses in power cuts that must not occur
        self.losses: list[str] = []
        #: the metadata of savepoints, by directory, at the time they became visible
        self.savepoints: dict[str, bytes] = {}
        #: savepoint directories that may stay incomplete: no process was there to delete them, or that failed
        self.excused: set[str] = set()
        #: savepoint directories whose metadata has both its final and its former name: a process may end in between
        self.half_named: set[str] = set()
        #: directories that a job has claimed and deleted; an abandoned read may still access them
        self.let_go: set[str] = set()
        #: the files of checkpoints that outlived their jobs, by directory
        self.retained: dict[str, dict[str, bytes]] = {}
        #: the checkpoints and savepoints reported as complete, by directory
        self.promised: dict[str, None] = {}
        #: the files lost in the last power cut
        self.lost: set[str] = set()
        #: directories whose metadata was deleted: a power cut may undo that when the other files no longer exist
        self.given_up: set[str] = set()
        #: the savepoint or checkpoint that the current job may delete
        self.claimed: str | None = None

    def publish_savepoint(self, directory: str) -> None:
        """Rename the metadata: from now on the savepoint exists and never changes."""
        if directory in self.savepoints:
            self.violations.append(f"savepoint {directory} was written over")
            self.unlink(f"{directory}/{METADATA}")
        self.link(f"{directory}/{PARTIAL}", f"{directory}/{METADATA}")
        self.savepoints[directory] = self.files[f"{directory}/{METADATA}"]
        self.half_named.add(directory)
        self.unlink(f"{directory}/{PARTIAL}")
        self.half_named.discard(directory)

    def move_savepoint(self, directory: str, to: str) -> None:
        """Move a savepoint durably, as a user may."""
        make_directories(self, to)
        for path in self.below(directory):
            self.rename(path, to + path.removeprefix(directory))
        self.sync_directory(directory)
        self.sync_directory(to)
        if directory in self.promised:
            del self.promised[directory]
            self.promise(to)
        self.savepoints[to] = self.savepoints.pop(directory)
        if directory in self.excused:
            self.excused.add(to)
        if directory in self.half_named:
            self.half_named.add(to)

    def claim_savepoint(self, directory: str) -> list[str]:
        """Begin a job's deletion of a savepoint; return its files in the order of deletion."""
        if directory != self.claimed:
            self.violations.append(f"savepoint {directory} is deleted by a job that has not claimed it")
        elif directory in self.savepoints:
            del self.savepoints[directory]
            self.excused.add(directory)
        else:
            self.retained.pop(directory, None)
        self.let_go.add(directory)
        return sorted(self.below(directory), key=lambda path: not path.endswith(METADATA))

    def retain(self, directory: str, metadata: CheckpointMetadata) -> None:
        """Hand over to the user a checkpoint that an ended job leaves."""
        paths = [f"{directory}/{METADATA}", *(f.path for f in metadata.state_files() if f.path is not None)]
        self.retained[directory] = {path: self.files.get(path, b"") for path in paths}

    def flaws_of_retained(self) -> list[str]:
        """Return the flaws of the checkpoints that outlived their jobs."""
        return [
            f"checkpoint {directory} was left to the user, and {path} is not what it was"
            for directory, files in self.retained.items()
            for path, data in files.items()
            if self.files.get(path) != data
        ]

    # --- power cuts ------------------------------------------------------------------------------------------------

    def promise(self, directory: str) -> None:
        """Note that a checkpoint or savepoint is reported as complete: it must stay until it is deleted."""
        self.promised[directory] = None

    def unlink(self, path: str) -> None:
        if path.endswith(f"/{METADATA}") and path in self.files and not self.is_off:
            self.promised.pop(get_directory(path), None)
            self.given_up.add(get_directory(path))
        super().unlink(path)

    def lose_power(self, chance: random.Random) -> None:
        before = set(self.files)
        super().lose_power(chance)
        self.lost = before.difference(self.files)
        for directory in list(self.savepoints):
            if f"{directory}/{METADATA}" not in self.files:
                del self.savepoints[directory]  # it was never reported, or `_losses` reports its loss
        self.excused.update(path for path in self.directories() if path not in self.promised)
        self.losses += self._losses()

    def _losses(self) -> list[str]:
        """Return the promised checkpoints and savepoints that are missing, and the visible ones that are damaged."""
        losses = [
            f"{directory}, which was complete, is lost"
            for directory in self.promised
            if f"{directory}/{METADATA}" not in self.files
        ]
        for path in self.files:
            directory = get_directory(path)
            if path == f"{directory}/{METADATA}" and directory not in self.given_up and self.files[path] != REVOKED:
                losses += self._damage(directory)
        return losses

    def _damage(self, directory: str) -> list[str]:
        """Return why a checkpoint or savepoint that looks complete cannot be restored."""
        try:
            metadata = self.load_savepoint(directory)
            job_id, number = metadata.job_id, metadata.checkpoint_id
            if not metadata.is_savepoint and not checkpoint_counts(self.found, job_id, number, metadata.job_master):
                return []  # its job master was deposed, and others may have deleted its files
            for file in metadata.state_files():
                # The copy of a savepoint needs the savepoint's files only until its job has ended.
                if file.path is not None and not (metadata.ends_job and file.path.startswith(f"{SAVEPOINTS}/")):
                    check_file(file, self.files.get(file.path, b""))
        except CheckpointError as error:
            return [f"{directory} looks whole: {error}"]
        return []

    # --- who leads -------------------------------------------------------------------------------------------------

    def numbered(self, prefix: str) -> dict[int, bytes]:
        """Return the files of the job masters, by number."""
        begin = f"{LEADERS}/{prefix}"
        return {
            int(path.removeprefix(begin)): self.files[path]
            for path in self.files
            if path.startswith(begin) and not path.endswith(PART)
        }

    @property
    def leader(self) -> int:
        """The number of the leading job master."""
        return max((*self.numbered(MASTER_PREFIX), *self.numbered(FOUND_PREFIX)), default=0)

    @property
    def found(self) -> Found | None:
        """The findings of the last job master that took over."""
        records = self.numbered(FOUND_PREFIX)
        return decode_found(records[max(records)], LEADERS) if records else None

    # --- reading ---------------------------------------------------------------------------------------------------

    def load_savepoint(self, directory: str) -> CheckpointMetadata:
        """Load a savepoint's metadata, with complete paths."""
        where = f"{directory}/{METADATA}"
        data = self.files.get(where)
        if data is None:
            raise MissingMetadataError(f"{directory} holds no savepoint")

        def located(file: StateFile) -> StateFile:
            name = file.path
            if name is not None and "/" not in name:
                name = f"{directory}/{name}"
            return StateFile(file.length, file.checksum, name, file.data)

        metadata = decode_metadata(data, where).with_files(located)
        return msgspec.structs.replace(metadata, external_path=directory)

    def read_retained(self, job_name: str) -> LeftByJobs:
        """Return the checkpoints and marks left by jobs of a name, as far as they count."""
        checkpoints, before = [], self.found
        for path in sorted(self.files):
            job_id, _, rest = path.partition("/chk-")
            if rest.endswith(f"/{METADATA}") and self.files[path] != REVOKED:
                number = int(rest.partition("/")[0])
                directory = f"{job_id}/chk-{number}"
                try:
                    metadata = self.load_savepoint(directory)
                except CheckpointError as error:
                    checkpoints.append(Left(directory, job_id, number, None, str(error)))
                    continue
                if checkpoint_counts(before, job_id, number, metadata.job_master):
                    checkpoints.append(Left(directory, job_id, number, metadata))
        encoded_marks = [self.files[path] for path in self.below(MARKS_DIRECTORY) if not path.endswith(PART)]
        encoded_marks += self.numbered(MARK_PREFIX).values()
        of_jobs = [mark for data in encoded_marks if (mark := decode_mark(data, MARKS_DIRECTORY)).job_name == job_name]
        counting = [mark for mark in of_jobs if mark_counts(before, mark.job_id, mark.status, mark.job_master)]
        return LeftByJobs(of_name(job_name, checkpoints), tuple(counting))

    def find_flaws(self, directory: str) -> list[str]:
        """Return the flaws of a visible savepoint: it has to be complete and self-contained (H1)."""
        if self.files.get(f"{directory}/{METADATA}") != self.savepoints[directory]:
            return [f"savepoint {directory} is not what was written"]
        flaws = []
        expected = {f"{directory}/{METADATA}"}
        for file in decode_metadata(self.savepoints[directory], directory).state_files():
            if file.path is None:
                continue
            expected.add(f"{directory}/{file.path}")
            if "/" in file.path:
                flaws.append(f"savepoint {directory} needs {file.path}")
                continue
            try:
                check_file(file, self.files.get(f"{directory}/{file.path}", b""))
            except CheckpointError as error:
                flaws.append(f"savepoint {directory}: {error}")
        if directory not in self.excused:
            if directory in self.half_named:
                expected.add(f"{directory}/{PARTIAL}")
            more = [path for path in self.below(directory) if path not in expected]
            flaws += [f"savepoint {directory} does not name {path}" for path in more]
        return flaws

    def directories(self) -> set[str]:
        """Return the savepoint directories, complete or not."""
        return {path.rpartition("/")[0] for path in self.files if path.startswith(f"{SAVEPOINTS}/")}

    def partial_savepoints(self) -> list[str]:
        """Return directories with remains of an unfinished savepoint that should have been deleted."""
        return sorted(d for d in self.directories() if d not in self.savepoints and d not in self.excused)
