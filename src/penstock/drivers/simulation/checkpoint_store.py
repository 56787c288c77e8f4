"""Checkpoint storage in memory: a file system that fails, and that records the invariants to check.

`MemoryStore` implements the ports `StateStorage` and `CheckpointStore` for one job. Metadata goes through the real
encoding. Where an operation takes several steps in the file system, each step is a separate method, so that its process
can die between them. The steps and the order of their syncs match `storage.files` and `storage.file_store`.

`LeadingStore` is the storage as used by one of the job's masters: with that master's number, like a file system store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from msgspec.structs import replace

from penstock.base.errors import CheckpointError
from penstock.drivers.simulation.disk import LEADERS, METADATA, PART, PARTIAL, Disk, get_directory, make_directories
from penstock.drivers.simulation.faults import Faults
from penstock.storage import leadership
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
    """A job's files. The paths of a checkpoint's files begin with its directory."""

    def __init__(self, disk: Disk, job_id: str, inline_bytes_max: int, faults: Faults) -> None:
        #: the highest id among the job's own checkpoints that have ever been visible
        self.visible_id_max = 0
        self._disk = disk
        self.job_id = job_id
        self._root = f"{job_id}/"
        self._inline_bytes_max = inline_bytes_max
        self._faults = faults
        #: called between two deletions
        self.on_delete: Callable[[], None] = lambda: None
        #: called when the savepoint that ends the job is visible but not yet among the job's checkpoints
        self.on_last: Callable[[], None] = lambda: None

    def get_directory(self, checkpoint_id: int) -> str:
        """Return the directory of a checkpoint."""
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
        existing = self._disk.files.get(path)
        # A checkpoint completes without the parts of finished tasks, so a savepoint may already hold a copy of the file
        # that such a task is about to write. The copy is the same file, and exists as a whole or not at all.
        if existing is not None and not (
            self.may_write_again(existing, data) or (savepoint_path is not None and existing == data)
        ):
            self._disk.violations.append(f"state file {path} was written twice")
        if existing is None or fault != "write-torn":
            upload(path, data[: len(data) // 2] if fault == "write-torn" else data)
        if fault is not None:
            raise OSError("planned: the connection broke")
        self._faults.maybe_die()
        return StateFile(len(data), digest, path=path)

    def state_path(self, checkpoint_id: int, name: str, digest: int) -> str:
        """Return the path of a state file."""
        return f"{self.get_directory(checkpoint_id)}/{name}"

    def may_write_again(self, existing: bytes, data: bytes) -> bool:
        """Return whether a state file may be overwritten without harm."""
        return False

    def upload(self, path: str, data: bytes) -> None:
        """Store one file. Its bytes survive a power cut; its name survives once its directory is synced."""
        self._put_state_file(path, data)

    def upload_for_savepoint(self, path: str, data: bytes) -> None:
        """Store one file in a savepoint's directory."""
        self._put_state_file(path, data)

    def _put_state_file(self, path: str, data: bytes) -> None:
        self.make_directories(get_directory(path))
        self._disk.write(f"{path}{PART}", data)
        self.sync_state_file(f"{path}{PART}")
        self._disk.rename(f"{path}{PART}", path)

    def make_directories(self, directory: str) -> None:
        """Make a directory and its parents durable."""
        make_directories(self._disk, directory)

    def sync_state_file(self, path: str) -> None:
        """Make a state file's bytes durable."""
        self._disk.sync_file(path)

    def read(self, file: StateFile) -> bytes:
        if file.data is not None:
            return check_file(file, file.data)
        assert file.path is not None
        if self._faults.in_worker and self._faults.storage_fault(("read-error",)):
            raise OSError("planned: the read failed")
        data = self._disk.files.get(file.path)
        if data is None:
            if self._faults.in_master and get_directory(file.path) not in self._disk.let_go | self._disk.given_up:
                self._disk.violations.append(f"state file {file.path} is missing")
            raise CheckpointError(f"{file.path} is missing")
        return check_file(file, data)

    def on_stored(self, checkpoint_id: int, files: Iterable[StateFile]) -> None:
        """Do nothing: the worker caches nothing."""

    def on_complete(self, checkpoint_id: int) -> None:
        """Do nothing: the worker caches nothing."""

    def close(self) -> None:
        """Do nothing: the worker caches nothing."""

    # --- whole checkpoints (job master) ----------------------------------------------------------------------------

    def complete(self, metadata: CheckpointMetadata, savepoint_path: str | None = None) -> str:
        if savepoint_path is not None:
            self.complete_savepoint(metadata, savepoint_path)
            if not metadata.ends_job:
                return savepoint_path
            self.on_last()
        directory, checkpoint_id = self.get_directory(metadata.checkpoint_id), metadata.checkpoint_id
        self._put_metadata(directory, metadata, lambda: self.make_visible(directory, checkpoint_id))
        return savepoint_path or directory

    def complete_savepoint(self, metadata: CheckpointMetadata, savepoint_path: str) -> None:
        """Complete a savepoint and make it movable: copy shared files, and name all files without a directory."""
        contained = metadata.with_files(lambda file: self.contained(file, savepoint_path))
        self._put_metadata(savepoint_path, contained, lambda: self.publish_savepoint(savepoint_path))

    def contained(self, file: StateFile, savepoint_path: str) -> StateFile:
        """Return a state file as a savepoint names it, copied if it lies in another directory."""
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
        """Sync directories that workers created but may not have synced before they died."""
        above = get_directory(directory)
        self._disk.sync_directory(get_directory(above))
        self._disk.sync_directory(above)

    def sync_state_names(self, directory: str) -> None:
        """Make the names of state files durable."""
        self._disk.sync_directory(directory)

    def write_partial(self, directory: str, data: bytes) -> None:
        """Write metadata under a name that readers ignore."""
        self._disk.write(f"{directory}/{PARTIAL}", data)

    def sync_partial(self, directory: str) -> None:
        """Make the bytes of the metadata durable."""
        self._disk.sync_file(f"{directory}/{PARTIAL}")

    def make_visible(self, directory: str, checkpoint_id: int) -> None:
        """Give the metadata its final name: from now on the checkpoint exists, unless it was revoked."""
        partial, path = f"{directory}/{PARTIAL}", f"{directory}/{METADATA}"
        data, existing = self._disk.files[partial], self._disk.files.get(path)
        if existing is not None:
            self._disk.unlink(partial)
            is_known = (
                existing == REVOKED or decode_metadata(existing, "").job_master != decode_metadata(data, "").job_master
            )
            if not is_known:
                self._disk.violations.append(f"checkpoint {directory} was written twice")
            raise CheckpointError(f"{directory}/{METADATA} exists")
        self._disk.link(partial, path)
        self._disk.unlink(partial)

    def sync_metadata(self, directory: str) -> None:
        """Make the name of the metadata durable: from now on sinks may commit the checkpoint's output."""
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
        self.put_revocation(self.get_directory(checkpoint_id))
        if fault is not None:
            raise OSError("planned: the connection broke")

    def put_revocation(self, directory: str) -> None:
        """Replace the metadata, if any, with a revocation."""
        self._put_named(f"{directory}/{METADATA}", REVOKED)

    def _put_named(self, path: str, data: bytes) -> None:
        """Write a file atomically and durably, replacing the existing one."""
        self.make_directories(get_directory(path))
        partial = f"{path}.1{PART}"  # distinct from the partial file of metadata that is written at the same time
        self._disk.write(partial, data)
        self.sync_named(partial)
        if path.endswith(f"/{METADATA}"):
            self._disk.promised.pop(get_directory(path), None)
        self._disk.rename(partial, path)
        self.sync_name(path)

    def sync_named(self, path: str) -> None:
        """Make the bytes of a mark, a revocation, or the record of a takeover durable."""
        self._disk.sync_file(path)

    def sync_name(self, path: str) -> None:
        """Make the name of such a file durable."""
        self._disk.sync_directory(get_directory(path))

    def discard_savepoint(self, savepoint_path: str) -> None:
        if f"{savepoint_path}/{METADATA}" in self._disk.files:
            return
        self._delete_all(lambda: self.found_below(savepoint_path), "discard")

    def delete_savepoint(self, savepoint_path: str) -> None:
        self._delete_all(lambda: self._disk.claim_savepoint(savepoint_path), syncs=True)

    def listing(self, known_ids: Iterable[int] = ()) -> list[str]:
        """Return the job's files; `known_ids` are checkpoints known to its master that a stale listing may lack."""
        if self._faults.storage_fault(("listing-refused",)):
            raise OSError("planned: the listing was refused")
        return self.own_files()

    def own_files(self) -> list[str]:
        """Return the paths of the job's own checkpoint files."""
        return [path for path in self._disk.files if path.startswith(self._root)]

    def delete(self, paths: list[str]) -> None:
        if paths:
            self._delete_all(lambda: paths)

    def delete_jobs(self, job_ids: Iterable[str], left: leadership.LeftByJobs | None = None) -> None:
        """Delete the files that jobs have left; `left` lists known ones that a stale listing may lack."""

        def find() -> list[str]:
            paths = [path for job_id in job_ids for path in self.found_below(job_id)]
            return sorted(paths, key=lambda path: not path.endswith(f"/{METADATA}"))

        self._delete_all(find)

    def found_below(self, directory: str) -> list[str]:
        """Return the files in a directory that a deletion sees."""
        return self._disk.below(directory)

    def _delete_all(self, find: Callable[[], list[str]], verb: str = "delete", syncs: bool = False) -> None:
        """Delete the files that `find` returns, unless a fault refuses or interrupts the deletion.

        With `syncs`, deletions of metadata are durable.
        """
        fault = self._faults.storage_fault((f"{verb}-refused", f"{verb}-torn", f"{verb}-done-but-error"))
        if fault == f"{verb}-refused":
            raise OSError("planned: the deletion was refused")
        paths = find()
        for path in paths[: len(paths) // 2] if fault == f"{verb}-torn" else paths:
            self.delete_file(path)
            if syncs and path.endswith(METADATA):
                self._disk.sync_directory(get_directory(path))
            self.on_delete()
        if fault is not None:
            raise OSError("planned: the connection broke")
        self.remove_directories(paths)

    def remove_directories(self, paths: list[str]) -> None:
        """Remove the directories of deleted files if they are empty."""
        for directory in sorted({get_directory(path) for path in paths}):
            self._disk.remove_directory(directory)

    def delete_file(self, path: str) -> None:
        """Delete one file if it exists."""
        self._disk.unlink(path)

    def leader(self) -> int:
        """Return the number of the leading job master."""
        return self._disk.leader

    def known_leader(self) -> int:
        """Return the same number as a job master sees it."""
        return self.leader()

    def is_deposed(self, number: int) -> bool:
        """Return whether a job master has taken a number higher than this one."""
        return self.leader() > number

    def note_newest(self, number: int, known_ids: Iterable[int], checkpoint_id: int) -> None:
        """Do nothing: listings show which checkpoint is the newest."""

    def take_number(self) -> int:
        """Take a number above all others, which deposes the previous leader."""
        if self._faults.storage_fault(("claim-refused",)):
            raise OSError("planned: the write was refused")
        number = self._disk.leader + 1
        path = f"{LEADERS}/{leadership.MASTER_PREFIX}{number}"
        self.make_directories(LEADERS)
        self._disk.write(path, self.job_id.encode())
        self._disk.sync_file(path)
        self.sync_number()
        return number

    def sync_number(self) -> None:
        """Make the taken number durable."""
        self._disk.sync_directory(LEADERS)

    def former(self, number: int) -> list[tuple[int, str]]:
        """Return the numbers and jobs of the earlier masters that have left a record."""
        before = self._disk.found
        masters = dict(() if before is None else before.former)
        for other, job_id in self._disk.numbered(leadership.MASTER_PREFIX).items():
            if other < number:
                masters[other] = job_id.decode()
        return sorted(masters.items())

    def has_left(self, job_id: str) -> bool:
        """Return whether a job has left files."""
        return bool(self._disk.below(job_id))

    def found(self) -> leadership.Found | None:
        """Return the findings of the last job master that took over."""
        return self._disk.found

    def put_found(self, left: leadership.LeftByJobs) -> None:
        """Record a job master's findings, and delete the numbers and findings of earlier masters."""
        self._put_named(f"{LEADERS}/{leadership.FOUND_PREFIX}{left.number}", leadership.encode_found(left.found()))
        for prefix in (leadership.MASTER_PREFIX, leadership.FOUND_PREFIX):
            for number in self._disk.numbered(prefix):
                if number < left.number:
                    self._disk.unlink(f"{LEADERS}/{prefix}{number}")

    def load_checkpoint(self, checkpoint_id: int) -> CheckpointMetadata:
        where = f"{self.get_directory(checkpoint_id)}/{METADATA}"
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

    def mark_job(self, mark: leadership.JobMark) -> None:
        fault = self._faults.storage_fault(("mark-refused", "mark-done-but-error"))
        if fault == "mark-refused":
            raise OSError("planned: the write was refused")
        self.put_mark(mark)
        if fault is not None:
            raise OSError("planned: the connection broke")

    def put_mark(self, mark: leadership.JobMark) -> None:
        """Record, visibly to all from now on, that the job has begun or ended."""
        path = f"{leadership.MARKS_DIRECTORY}/{leadership.mark_file(mark)}"
        self._put_named(path, leadership.encode_mark(mark))
        for other in self._disk.below(leadership.MARKS_DIRECTORY):
            is_part = other.endswith(PART)
            number = 0 if is_part else leadership.decode_mark(self._disk.files[other], other).job_master
            if other != path and number <= mark.job_master:
                self.delete_file(other)

    def read_retained(self, job_name: str) -> leadership.LeftByJobs:
        if self._faults.storage_fault(("load-refused",)):
            raise OSError("planned: the read failed")
        left = self._disk.read_retained(job_name)
        for directory in (*(checkpoint.directory for checkpoint in left.checkpoints), leadership.MARKS_DIRECTORY):
            self.sync_found(directory)
        return left

    def sync_found(self, directory: str) -> None:
        """Make the starting point of a job durable: its creator may have died before it synced the name."""
        self._disk.sync_directory(directory)
        if f"{directory}/{METADATA}" in self._disk.files and directory not in self._disk.given_up:
            self._disk.promise(directory)
        if directory.startswith(self._root):
            self._note_visible(int(directory.removeprefix(f"{self._root}chk-")))

    # --- what must hold --------------------------------------------------------------------------------------------

    def missing_files(self, metadata: CheckpointMetadata) -> list[str]:
        """Return the files that a retained checkpoint names and that are missing."""
        paths = [f.path for f in metadata.state_files() if f.path is not None]
        where = f"{self.get_directory(metadata.checkpoint_id)}/{METADATA}"
        return [p for p in [where, *paths] if p not in self._disk.files]

    def damaged(self) -> dict[str, list[str]]:
        """Return the visible checkpoints that lack files, by directory, each with its missing files."""
        missing_by_directory = {}
        for where in [path for path in self.own_files() if path.endswith(f"/{METADATA}")]:
            # A power cut may have undone the deletion of its metadata; recovery has already skipped it.
            if self._disk.files[where] == REVOKED or get_directory(where) in self._disk.given_up:
                continue
            metadata = decode_metadata(self._disk.files[where], where)
            if not leadership.checkpoint_counts(
                self._disk.found, self.job_id, metadata.checkpoint_id, metadata.job_master
            ):
                continue  # its job master was deposed, and no job starts from it
            missing = [f.path for f in metadata.state_files() if f.path is not None and f.path not in self._disk.files]
            if missing:
                missing_by_directory[where.removesuffix(f"/{METADATA}")] = missing
        return missing_by_directory

    def leftovers(self, retained: Collection[CheckpointMetadata] = ()) -> list[str]:
        """Return all checkpoint files that no retained checkpoint needs."""
        needed = {f.path for metadata in retained for f in metadata.state_files()}
        needed |= {f"{self.get_directory(metadata.checkpoint_id)}/{METADATA}" for metadata in retained}
        return sorted(path for path in self.own_files() if path not in needed)


class LeadingStore:
    """The port `CheckpointStore` of one job master."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._number = 0
        self._known_ids: set[int] = set()
        self._left: leadership.LeftByJobs | None = None
        #: called between the steps of a call, where other processes may act
        self.between: Callable[[], None] = lambda: None

    def join(self, job_name: str) -> None:
        self._number = self._store.known_leader()

    def take_over(self, job_name: str) -> leadership.LeftByJobs:
        self._number = self._store.take_number()
        self.between()
        before = self._store.former(self._number)
        left = self._store.read_retained(job_name).of_master(self._number, before, self._store.has_left)
        self.between()
        self._store.put_found(left)
        self._left, self._known_ids = left, left.list_checkpoint_ids(self._store.job_id)
        return left

    def counts(self, checkpoint_id: int) -> bool:
        """Return whether a checkpoint of this master currently counts as one of the job's."""
        return leadership.checkpoint_counts(self._store.found(), self._store.job_id, checkpoint_id, self._number)

    @property
    def may_lead(self) -> bool:
        """Whether it was not deposed, or has yet to take over the job."""
        return self._number in (0, self._store.leader())

    def check_leads(self) -> None:
        if self._store.is_deposed(self._number):
            raise leadership.DeposedError(self._store.job_id, "another job master has taken the job over")

    def complete(self, metadata: CheckpointMetadata, savepoint_path: str | None = None) -> str:
        path = self._store.complete(replace(metadata, job_master=self._number), savepoint_path)
        self.between()
        if savepoint_path is None or metadata.ends_job:
            self._store.note_newest(self._number, self._known_ids, metadata.checkpoint_id)
            self.check_leads()
            self._known_ids.add(metadata.checkpoint_id)
        return path

    def revoke(self, checkpoint_id: int) -> None:
        self.check_leads()
        self._store.revoke(checkpoint_id)

    def discard_savepoint(self, savepoint_path: str) -> None:
        self._store.discard_savepoint(savepoint_path)

    def delete_savepoint(self, savepoint_path: str) -> None:
        self.check_leads()
        self._store.delete_savepoint(savepoint_path)

    def listing(self) -> list[str]:
        return self._store.listing(self._known_ids)

    def delete(self, paths: list[str]) -> None:
        self.check_leads()
        self._store.delete(paths)
        for path in paths:
            self._known_ids.discard(leadership.id_of_metadata(path, self._store.job_id))

    def delete_jobs(self, job_ids: Iterable[str]) -> None:
        self.check_leads()
        self._store.delete_jobs(job_ids, self._left)

    def load_checkpoint(self, checkpoint_id: int) -> CheckpointMetadata:
        return self._store.load_checkpoint(checkpoint_id)

    def load(self, path: str, job_name: str | None = None, claims: bool = False) -> CheckpointMetadata:
        return self._store.load(path)

    def mark_job(self, mark: leadership.JobMark) -> None:
        self._store.mark_job(replace(mark, job_master=self._number))
        self.check_leads()

    def verify(self, metadata: CheckpointMetadata) -> None:
        self.check_leads()
        self._store.verify(metadata)
