"""Checkpoint storage in memory: a file system that fails, and that remembers what must hold of it.

Implements the ports `StateStorage` and `CheckpointStore` for one job. Metadata goes through its real encoding. Where
one operation takes several steps in the file system, each step is a method of its own, so that an owner can die between
them. The steps, and what is synced when, are those of `storage.files` and `storage.file_store`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from msgspec.structs import replace

from penstock.base.errors import CheckpointError
from penstock.drivers.simulation.disk import LEADERS, METADATA, PART, PARTIAL, Disk
from penstock.drivers.simulation.faults import Faults
from penstock.drivers.simulation.page_cache import directory_of, make_directories
from penstock.storage.job_marks import (
    MARKS_DIRECTORY,
    JobMark,
    LeftByJobs,
    decode_mark,
    encode_mark,
    mark_file,
)
from penstock.storage.leadership import FOUND_PREFIX, MASTER_PREFIX, Found, checkpoint_counts, encode_found
from penstock.storage.metadata import (
    REVOKED,
    CheckpointMetadata,
    StateFile,
    check_file,
    checksum,
    decode_metadata,
    encode_metadata,
)


class MemoryStore:
    """A job's files; the paths of a checkpoint's begin with its directory."""

    def __init__(self, disk: Disk, job_id: str, inline_bytes_max: int, faults: Faults) -> None:
        #: the highest checkpoint that has ever been visible among the job's own
        self.visible_id_max = 0
        self._disk = disk
        self.job_id = job_id
        self._root = f"{job_id}/"
        self._inline_bytes_max = inline_bytes_max
        self._faults = faults
        #: called between two deletions
        self.on_delete: Callable[[], None] = lambda: None
        #: called when the savepoint that ends the job is visible, and not among the job's checkpoints yet
        self.on_last: Callable[[], None] = lambda: None

    def directory_of(self, checkpoint_id: int) -> str:
        """Where a checkpoint lies."""
        return f"{self._root}chk-{checkpoint_id}"

    # --- state files (workers) -------------------------------------------------------------------------------------

    def write(self, checkpoint_id: int, name: str, data: bytes, savepoint_path: str | None = None) -> StateFile:
        digest = checksum(data)
        if len(data) <= self._inline_bytes_max:
            return StateFile(len(data), digest, data=data)
        self._faults.maybe_die()
        if savepoint_path is None:
            path, upload = self.state_path(checkpoint_id, name, digest), self.upload
        else:
            path, upload = f"{savepoint_path}/{name}-{digest:016x}", self.upload_for_savepoint
        fault = self._faults.storage_fault(("write-refused", "write-torn", "write-done-but-error"))
        if fault == "write-refused":
            raise OSError("planned: the write was refused")
        there = self._disk.files.get(path)
        # A task that has finished counts without its part, so a savepoint may hold a copy of what it is still to write.
        # That is the same file, and it is there whole, or not at all.
        if there is not None and not (
            self.may_write_again(there, data) or (savepoint_path is not None and there == data)
        ):
            self._disk.violations.append(f"state file {path} was written twice")
        if there is None or fault != "write-torn":
            upload(path, data[: len(data) // 2] if fault == "write-torn" else data)
        if fault is not None:
            raise OSError("planned: the connection broke")
        self._faults.maybe_die()
        return StateFile(len(data), digest, path=path)

    def state_path(self, checkpoint_id: int, name: str, digest: int) -> str:
        """Where a state file lies."""
        return f"{self.directory_of(checkpoint_id)}/{name}"

    def may_write_again(self, there: bytes, data: bytes) -> bool:
        """Whether it does no harm when a state file is written where there is one."""
        return False

    def upload(self, path: str, data: bytes) -> None:
        """Store one file: its bytes survive a power cut, and its name once its directory is synced."""
        self._put_state_file(path, data)

    def upload_for_savepoint(self, path: str, data: bytes) -> None:
        """Store one file in a savepoint's directory."""
        self._put_state_file(path, data)

    def _put_state_file(self, path: str, data: bytes) -> None:
        self.make_directories(directory_of(path))
        self._disk.write(f"{path}{PART}", data)
        self.sync_state_file(f"{path}{PART}")
        self._disk.rename(f"{path}{PART}", path)

    def make_directories(self, directory: str) -> None:
        """Make a directory, and those above it, for good."""
        make_directories(self._disk, directory)

    def sync_state_file(self, path: str) -> None:
        """Let a state file's bytes survive."""
        self._disk.sync_file(path)

    def read(self, file: StateFile) -> bytes:
        if file.data is not None:
            return check_file(file, file.data)
        assert file.path is not None
        if self._faults.in_worker and self._faults.storage_fault(("read-error",)):
            raise OSError("planned: the read failed")
        data = self._disk.files.get(file.path)
        if data is None:
            if self._faults.in_master and directory_of(file.path) not in self._disk.let_go | self._disk.given_up:
                self._disk.violations.append(f"state file {file.path} is missing")
            raise CheckpointError(f"{file.path} is missing")
        return check_file(file, data)

    def on_stored(self, checkpoint_id: int, files: Iterable[StateFile]) -> None:
        """Nothing is kept in the worker."""

    def on_complete(self, checkpoint_id: int) -> None:
        """Nothing is kept in the worker."""

    def close(self) -> None:
        """Nothing is kept in the worker."""

    # --- whole checkpoints (job master) ----------------------------------------------------------------------------

    def complete(self, metadata: CheckpointMetadata, savepoint_path: str | None = None) -> str:
        if savepoint_path is not None:
            self.complete_savepoint(metadata, savepoint_path)
            if not metadata.ends_job:
                return savepoint_path
            self.on_last()
        directory, checkpoint_id = self.directory_of(metadata.checkpoint_id), metadata.checkpoint_id
        self._put_metadata(directory, metadata, lambda: self.make_visible(directory, checkpoint_id))
        return savepoint_path or directory

    def complete_savepoint(self, metadata: CheckpointMetadata, savepoint_path: str) -> None:
        """Make a savepoint whole and movable: what it shares is copied, and its files are named without directory."""
        contained = metadata.with_files(lambda file: self.contained(file, savepoint_path))
        self._put_metadata(savepoint_path, contained, lambda: self.publish_savepoint(savepoint_path))

    def contained(self, file: StateFile, savepoint_path: str) -> StateFile:
        """A state file as a savepoint names it, copied when it lies in another directory."""
        if file.path is None:
            return file
        directory, _, name = file.path.rpartition("/")
        if directory != savepoint_path:
            name = f"{name}-{file.checksum:016x}"
            self.upload_for_savepoint(f"{savepoint_path}/{name}", self.read(file))
        return StateFile(file.length, file.checksum, path=name)

    def _put_metadata(self, directory: str, metadata: CheckpointMetadata, publish: Callable[[], None]) -> None:
        data = encode_metadata(metadata)
        self.make_directories(directory)
        self.sync_what_others_made(directory)
        self.sync_state_names(directory)
        fault = self._faults.storage_fault(("complete-refused", "complete-torn", "complete-done-but-error"))
        if fault == "complete-refused":
            raise OSError("planned: the write was refused")
        self.write_partial(directory, data[: len(data) // 2] if fault == "complete-torn" else data)
        self.sync_partial(directory)
        if fault == "complete-torn":
            raise OSError("planned: the connection broke")
        publish()
        self.sync_metadata(directory)
        if fault is not None:
            raise OSError("planned: the connection broke")
        self._disk.promise(directory)

    def sync_what_others_made(self, directory: str) -> None:
        """Let the directories survive that workers have made, and died before they synced them."""
        above = directory_of(directory)
        self._disk.sync_directory(directory_of(above))
        self._disk.sync_directory(above)

    def sync_state_names(self, directory: str) -> None:
        """Let the names of state files survive."""
        self._disk.sync_directory(directory)

    def write_partial(self, directory: str, data: bytes) -> None:
        """Write metadata under a name that no reader looks for."""
        self._disk.write(f"{directory}/{PARTIAL}", data)

    def sync_partial(self, directory: str) -> None:
        """Let the bytes of the metadata survive."""
        self._disk.sync_file(f"{directory}/{PARTIAL}")

    def make_visible(self, directory: str, checkpoint_id: int) -> None:
        """Give the metadata its name: from now on the checkpoint exists, unless it was revoked."""
        partial, path = f"{directory}/{PARTIAL}", f"{directory}/{METADATA}"
        data, there = self._disk.files[partial], self._disk.files.get(path)
        if there is not None:
            self._disk.unlink(partial)
            is_known = there == REVOKED or decode_metadata(there, "").job_master != decode_metadata(data, "").job_master
            if not is_known:
                self._disk.violations.append(f"checkpoint {directory} was written twice")
            raise CheckpointError(f"{directory}/{METADATA} exists")
        self._disk.link(partial, path)
        self._disk.unlink(partial)

    def sync_metadata(self, directory: str) -> None:
        """Let the name of the metadata survive: from now on sinks may commit what the checkpoint holds."""
        self._disk.sync_directory(directory)
        if directory.startswith(self._root):
            self._note_visible(int(directory.removeprefix(f"{self._root}chk-")))

    def _note_visible(self, checkpoint_id: int) -> None:
        self.visible_id_max = max(self.visible_id_max, checkpoint_id)

    def publish_savepoint(self, savepoint_path: str) -> None:
        """Rename the metadata: from now on the savepoint exists."""
        self._disk.publish_savepoint(savepoint_path)

    def revoke(self, checkpoint_id: int) -> None:
        fault = self._faults.storage_fault(("revoke-refused", "revoke-done-but-error"))
        if fault == "revoke-refused":
            raise OSError("planned: the write was refused")
        self.put_revocation(self.directory_of(checkpoint_id))
        if fault is not None:
            raise OSError("planned: the connection broke")

    def put_revocation(self, directory: str) -> None:
        """Take the place of the metadata, whether it is there or not."""
        self._put_named(f"{directory}/{METADATA}", REVOKED)

    def _put_named(self, path: str, data: bytes) -> None:
        """Write a file that is there whole or not at all, for good, in the place of the one that is there."""
        self.make_directories(directory_of(path))
        partial = f"{path}.1{PART}"  # another one than that of metadata that comes at the same time
        self._disk.write(partial, data)
        self.sync_named(partial)
        if path.endswith(f"/{METADATA}"):
            self._disk.promised.pop(directory_of(path), None)
        self._disk.rename(partial, path)
        self.sync_name(path)

    def sync_named(self, path: str) -> None:
        """Let the bytes of a mark, a revocation, or the record of what was found survive."""
        self._disk.sync_file(path)

    def sync_name(self, path: str) -> None:
        """Let its name survive."""
        self._disk.sync_directory(directory_of(path))

    def discard_savepoint(self, savepoint_path: str) -> None:
        if f"{savepoint_path}/{METADATA}" in self._disk.files:
            return
        self._delete_all(lambda: self.found_below(savepoint_path), "discard")

    def delete_savepoint(self, savepoint_path: str) -> None:
        self._delete_all(lambda: self._disk.claim_savepoint(savepoint_path), syncs=True)

    def listing(self, known_ids: Iterable[int] = ()) -> list[str]:
        """The job's files; `known_ids`: the checkpoints that its master knows, which a late listing may not show."""
        if self._faults.storage_fault(("listing-refused",)):
            raise OSError("planned: the listing was refused")
        return self.own_files()

    def own_files(self) -> list[str]:
        """The job's checkpoints."""
        return [path for path in self._disk.files if path.startswith(self._root)]

    def delete(self, paths: list[str]) -> None:
        if paths:
            self._delete_all(lambda: paths)

    def delete_jobs(self, job_ids: Iterable[str], left: LeftByJobs | None = None) -> None:
        """Delete what jobs have left; `left`: what is known of it, which a late listing may not show."""

        def find() -> list[str]:
            found = [path for job_id in job_ids for path in self.found_below(job_id)]
            return sorted(found, key=lambda path: not path.endswith(f"/{METADATA}"))

        self._delete_all(find)

    def found_below(self, directory: str) -> list[str]:
        """What a deletion finds in a directory."""
        return self._disk.below(directory)

    def _delete_all(self, find: Callable[[], list[str]], verb: str = "delete", syncs: bool = False) -> None:
        """Delete what `find` finds, unless a fault refuses it or stops it half-way; `syncs`: metadata for good."""
        fault = self._faults.storage_fault((f"{verb}-refused", f"{verb}-torn", f"{verb}-done-but-error"))
        if fault == f"{verb}-refused":
            raise OSError("planned: the deletion was refused")
        paths = find()
        for path in paths[: len(paths) // 2] if fault == f"{verb}-torn" else paths:
            self.delete_file(path)
            if syncs and path.endswith(METADATA):
                self._disk.sync_directory(directory_of(path))
            self.on_delete()
        if fault is not None:
            raise OSError("planned: the connection broke")
        self.remove_directories(paths)

    def remove_directories(self, paths: list[str]) -> None:
        """Remove the directories of files that are gone, as far as they are empty."""
        for directory in sorted({directory_of(path) for path in paths}):
            self._disk.remove_directory(directory)

    def delete_file(self, path: str) -> None:
        """Delete one file, when it is there."""
        self._disk.unlink(path)

    def leader(self) -> int:
        """The number of the job master that leads."""
        return self._disk.leader

    def known_leader(self) -> int:
        """The same, as a job master finds it."""
        return self.leader()

    def is_deposed(self, number: int) -> bool:
        """Whether a job master has taken a number above that one."""
        return self.leader() > number

    def note_newest(self, number: int, known_ids: Iterable[int], checkpoint_id: int) -> None:
        """Listings tell which checkpoint is the newest."""

    def take_number(self) -> int:
        """Take a number above all others: whoever led is deposed from now on."""
        if self._faults.storage_fault(("claim-refused",)):
            raise OSError("planned: the write was refused")
        number = self._disk.leader + 1
        path = f"{LEADERS}/{MASTER_PREFIX}{number}"
        self.make_directories(LEADERS)
        self._disk.write(path, self.job_id.encode())
        self._disk.sync_file(path)
        self.sync_number()
        return number

    def sync_number(self) -> None:
        """Let the number that was taken be taken for good."""
        self._disk.sync_directory(LEADERS)

    def former(self, number: int) -> list[tuple[int, str]]:
        """The masters before the one of a number, as far as anything tells of them, and their jobs."""
        before = self._disk.found
        masters = dict(() if before is None else before.former)
        for other, job_id in self._disk.numbered(MASTER_PREFIX).items():
            if other < number:
                masters[other] = job_id.decode()
        return sorted(masters.items())

    def has_left(self, job_id: str) -> bool:
        """Whether a job has left files."""
        return bool(self._disk.below(job_id))

    def found(self) -> Found | None:
        """What the last job master that took over has found."""
        return self._disk.found

    def put_found(self, left: LeftByJobs) -> None:
        """Record what a job master found; what former ones did and found is needed no more."""
        self._put_named(f"{LEADERS}/{FOUND_PREFIX}{left.number}", encode_found(left.found()))
        for prefix in (MASTER_PREFIX, FOUND_PREFIX):
            for number in self._disk.numbered(prefix):
                if number < left.number:
                    self._disk.unlink(f"{LEADERS}/{prefix}{number}")

    def load_checkpoint(self, checkpoint_id: int) -> CheckpointMetadata:
        where = f"{self.directory_of(checkpoint_id)}/{METADATA}"
        data = self._disk.files.get(where)
        if data is None:
            raise CheckpointError(f"{where} is missing")
        return decode_metadata(data, where)

    def load(self, path: str) -> CheckpointMetadata:
        if self._faults.storage_fault(("load-refused",)):
            raise OSError("planned: the read failed")
        metadata = self._disk.load_savepoint(path)
        self.sync_found(path)
        return metadata

    def verify(self, metadata: CheckpointMetadata) -> None:
        if metadata.job_id == self.job_id and self._stored(metadata) != metadata:
            raise CheckpointError(f"checkpoint {metadata.checkpoint_id} is not what was written")
        for file in metadata.state_files():
            self.read(file)

    def _stored(self, metadata: CheckpointMetadata) -> CheckpointMetadata:
        return replace(self.load_checkpoint(metadata.checkpoint_id), job_master=metadata.job_master)

    # --- what has become of jobs -----------------------------------------------------------------------------------

    def mark_job(self, mark: JobMark) -> None:
        fault = self._faults.storage_fault(("mark-refused", "mark-done-but-error"))
        if fault == "mark-refused":
            raise OSError("planned: the write was refused")
        self.put_mark(mark)
        if fault is not None:
            raise OSError("planned: the connection broke")

    def put_mark(self, mark: JobMark) -> None:
        """Record, visible to all from now on, that the job has begun, or ended."""
        path = f"{MARKS_DIRECTORY}/{mark_file(mark)}"
        self._put_named(path, encode_mark(mark))
        for other in self._disk.below(MARKS_DIRECTORY):
            is_part = other.endswith(PART)
            number = 0 if is_part else decode_mark(self._disk.files[other], other).job_master
            if other != path and number <= mark.job_master:
                self.delete_file(other)

    def left_by(self, job_name: str) -> LeftByJobs:
        if self._faults.storage_fault(("load-refused",)):
            raise OSError("planned: the read failed")
        left = self._disk.left_by(job_name)
        for directory in (*(one.directory for one in left.checkpoints), MARKS_DIRECTORY):
            self.sync_found(directory)
        return left

    def sync_found(self, directory: str) -> None:
        """Let what a job goes on from survive: whoever made it visible may have died before the name was synced."""
        self._disk.sync_directory(directory)
        if f"{directory}/{METADATA}" in self._disk.files and directory not in self._disk.given_up:
            self._disk.promise(directory)
        if directory.startswith(self._root):
            self._note_visible(int(directory.removeprefix(f"{self._root}chk-")))

    # --- what must hold --------------------------------------------------------------------------------------------

    def missing_files(self, metadata: CheckpointMetadata) -> list[str]:
        """Files that a kept checkpoint names and that are not there."""
        wanted = [f.path for f in metadata.state_files() if f.path is not None]
        where = f"{self.directory_of(metadata.checkpoint_id)}/{METADATA}"
        return [p for p in [where, *wanted] if p not in self._disk.files]

    def damaged(self) -> dict[str, list[str]]:
        """Checkpoints that are visible and lack files, by directory, with these files."""
        found = {}
        for where in [path for path in self.own_files() if path.endswith(f"/{METADATA}")]:
            # The deletion of its metadata may have been undone by a power cut; it was passed over already.
            if self._disk.files[where] == REVOKED or directory_of(where) in self._disk.given_up:
                continue
            metadata = decode_metadata(self._disk.files[where], where)
            if not checkpoint_counts(self._disk.found, self.job_id, metadata.checkpoint_id, metadata.job_master):
                continue  # its job master was deposed, and nobody begins from it
            missing = [f.path for f in metadata.state_files() if f.path is not None and f.path not in self._disk.files]
            if missing:
                found[where.removesuffix(f"/{METADATA}")] = missing
        return found

    def leftovers(self, kept: Collection[CheckpointMetadata] = ()) -> list[str]:
        """All files of checkpoints, but of those that are kept."""
        needed = {f.path for metadata in kept for f in metadata.state_files()}
        needed |= {f"{self.directory_of(metadata.checkpoint_id)}/{METADATA}" for metadata in kept}
        return sorted(path for path in self.own_files() if path not in needed)
