"""The file system of a simulation: the files of all its jobs and savepoints, by path, and what must hold of them."""

from __future__ import annotations

import msgspec

from penstock.base.errors import CheckpointError
from penstock.storage.job_marks import MARKS_DIRECTORY, Left, LeftByJobs, decode_mark, of_name
from penstock.storage.leadership import Found, checkpoint_counts, mark_counts
from penstock.storage.metadata import REVOKED, CheckpointMetadata, StateFile, check_file, decode_metadata

METADATA = "_metadata"
PARTIAL = "_metadata.part"
#: Where the savepoints of all jobs are asked for.
SAVEPOINTS = "savepoints"


class Disk:
    """Files by path. A savepoint is a directory below SAVEPOINTS, and complete from the moment it has metadata."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.violations: list[str] = []
        #: the metadata of savepoints, by directory, as it became visible
        self.savepoints: dict[str, bytes] = {}
        #: directories of savepoints of which a part may be left: no process was there to delete it, or the deletion
        #: failed
        self.excused: set[str] = set()
        #: what a job has claimed and deleted: a read of it that was given up may still come
        self.let_go: set[str] = set()
        #: the files of checkpoints that outlived their jobs, by directory
        self.retained: dict[str, dict[str, bytes]] = {}
        #: the number of the job master that leads, and what the last one that took over found
        self.leader = 0
        self.found: Found | None = None
        #: the jobs of all masters that have taken a number
        self.masters: dict[int, str] = {}
        #: the savepoint or checkpoint that the job of now may delete
        self.claimed: str | None = None

    def publish_savepoint(self, directory: str) -> None:
        """Rename the metadata: from now on the savepoint exists, for ever and as it is."""
        if directory in self.savepoints:
            self.violations.append(f"savepoint {directory} was written over")
        data = self.files.pop(f"{directory}/{PARTIAL}")
        self.files[f"{directory}/{METADATA}"] = self.savepoints[directory] = data

    def move_savepoint(self, directory: str, to: str) -> None:
        """Put a savepoint elsewhere, as a user may."""
        for path in self.below(directory):
            self.files[to + path.removeprefix(directory)] = self.files.pop(path)
        self.savepoints[to] = self.savepoints.pop(directory)
        if directory in self.excused:
            self.excused.add(to)

    def claim_savepoint(self, directory: str) -> list[str]:
        """A job deletes a savepoint: its files, in the order in which they are to go."""
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
        """A job has ended and leaves a checkpoint: from now on it belongs to the user."""
        paths = [f"{directory}/{METADATA}", *(f.path for f in metadata.state_files() if f.path is not None)]
        self.retained[directory] = {path: self.files.get(path, b"") for path in paths}

    def flaws_of_retained(self) -> list[str]:
        """What is wrong with the checkpoints that outlived their jobs."""
        return [
            f"checkpoint {directory} was left to the user, and {path} is not what it was"
            for directory, files in self.retained.items()
            for path, data in files.items()
            if self.files.get(path) != data
        ]

    def below(self, directory: str) -> list[str]:
        """The files in a directory."""
        return [path for path in self.files if path.startswith(f"{directory}/")]

    def load_savepoint(self, directory: str) -> CheckpointMetadata:
        """A savepoint's metadata, with complete paths."""
        where = f"{directory}/{METADATA}"
        data = self.files.get(where)
        if data is None:
            raise CheckpointError(f"{directory} holds no savepoint")

        def located(file: StateFile) -> StateFile:
            name = file.path
            if name is not None and "/" not in name:
                name = f"{directory}/{name}"
            return StateFile(file.length, file.checksum, name, file.data)

        metadata = decode_metadata(data, where).with_files(located)
        return msgspec.structs.replace(metadata, external_path=directory)

    def left_by(self, job_name: str) -> LeftByJobs:
        """What the jobs of a name have left, as far as it counts."""
        found = []
        for path in sorted(self.files):
            job_id, _, rest = path.partition("/chk-")
            if rest.endswith(f"/{METADATA}") and self.files[path] != REVOKED:
                number = int(rest.partition("/")[0])
                directory = f"{job_id}/chk-{number}"
                metadata = self.load_savepoint(directory)
                if checkpoint_counts(self.found, job_id, number, metadata.job_master):
                    found.append(Left(directory, job_id, number, metadata))
        marks = [decode_mark(self.files[path], path) for path in self.below(MARKS_DIRECTORY)]
        of_jobs = [mark for mark in marks if mark.job_name == job_name]
        counting = [mark for mark in of_jobs if mark_counts(self.found, mark.job_id, mark.status, mark.job_master)]
        return LeftByJobs(of_name(job_name, found), tuple(counting))

    def flaws_of(self, directory: str) -> list[str]:
        """What is wrong with a savepoint that became visible: it has to be whole, and to need nothing outside (H1)."""
        if self.files.get(f"{directory}/{METADATA}") != self.savepoints[directory]:
            return [f"savepoint {directory} is not what was written"]
        flaws = []
        wanted = {f"{directory}/{METADATA}"}
        for file in decode_metadata(self.savepoints[directory], directory).state_files():
            if file.path is None:
                continue
            wanted.add(f"{directory}/{file.path}")
            if "/" in file.path:
                flaws.append(f"savepoint {directory} needs {file.path}")
                continue
            try:
                check_file(file, self.files.get(f"{directory}/{file.path}", b""))
            except CheckpointError as error:
                flaws.append(f"savepoint {directory}: {error}")
        if directory not in self.excused:
            more = [path for path in self.below(directory) if path not in wanted]
            flaws += [f"savepoint {directory} does not name {path}" for path in more]
        return flaws

    def directories(self) -> set[str]:
        """Those of savepoints, whole or not."""
        return {path.rpartition("/")[0] for path in self.files if path.startswith(f"{SAVEPOINTS}/")}

    def partial_savepoints(self) -> list[str]:
        """Directories in which something was left of a savepoint that did not come to be, and need not have been."""
        return sorted(d for d in self.directories() if d not in self.savepoints and d not in self.excused)
