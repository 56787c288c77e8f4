"""The file system of a simulation: the files of all its jobs and savepoints, by path, and their invariants."""

from __future__ import annotations

import random
from typing import Final

import msgspec

from penstock.base.errors import CheckpointError
from penstock.drivers.simulation.page_cache import PageCache, get_directory, make_directories
from penstock.storage.job_marks import MARKS_DIRECTORY, Left, LeftByJobs, decode_mark, of_name
from penstock.storage.keyed_leadership import MARK_PREFIX
from penstock.storage.leadership import (
    FOUND_PREFIX,
    MASTER_PREFIX,
    Found,
    checkpoint_counts,
    decode_found,
    mark_counts,
)
from penstock.storage.metadata import (
    REVOKED,
    CheckpointMetadata,
    MissingMetadataError,
    StateFile,
    check_file,
    decode_metadata,
)

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
