"""Checkpoints in any fsspec file system, or inside the job master without a directory (G11), and local copies.

`FileCheckpointStore` keeps checkpoints inside the job master if no directory is configured. A directory has the layout
`<directory>/<job id>/chk-<n>/` with state files and `_metadata`. The metadata is written atomically: under another name
and then renamed, or by one conditional request where renaming is not available.

A savepoint has its own directory, in any file system. Its metadata names its files without a directory, so the whole
savepoint can be moved (H1). In memory, the paths of its files are complete.

`LocalCopies` are copies of state files near the tasks that wrote them: a restarted task reads its copy instead of the
store. A copy is only a shortcut; the checkpoint is the data in the store. A copy is ignored if it is missing, could not
be written, or does not match the checksum in the checkpoint's metadata. The next write removes copies that the newest
completed checkpoint does not need.
"""

from __future__ import annotations

import contextlib
import logging
import posixpath
import re
import threading
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from typing import Any, Final, Protocol, TypeAlias

from msgspec.structs import replace

from penstock.base.durable_files import deletes_many, has_directories
from penstock.base.errors import CheckpointError
from penstock.codecs.file_systems import url_to_fs
from penstock.storage import leadership, savepoints
from penstock.storage.files import (
    ObjectFiles,
    absolute_url,
    content_of_file,
    lists_exactly,
    load_metadata,
    read_file,
    revoke_metadata,
    shown,
    signed_file,
    sync_found,
    write_file,
    write_metadata,
)
from penstock.storage.metadata import (
    METADATA_NAME,
    CheckpointMetadata,
    KeyedStateHandle,
    MissingMetadataError,
    NativeStateHandle,
    OperatorSubtaskState,
    StateFile,
    check_file,
    checksum,
)

#: The names that may be deleted as a job's directory, whatever name a file records.
DIRECTORY_OF_JOB: Final = re.compile(r"[\w-]+")
#: The maximum size (bytes) of one state inside the job master if no directory is configured.
JOB_MASTER_STATE_BYTES_MAX: Final = 32 << 20


#: Reads keyed state from a backend's own files; yields (state name, canonical file). The string names the state's
#: owner.
Exporter: TypeAlias = Callable[[NativeStateHandle, Callable[[StateFile], bytes], str], Iterator[tuple[str, bytes]]]


class FileCheckpointStore:
    """Both halves of checkpoint storage: state files for workers, whole checkpoints for the job master.

    Args:
        directory: the directory of the checkpoints; None keeps them in the job master.
        job_id: the job.
        inline_bytes_max: the maximum size of state inside the metadata.
        export: converts state that a savepoint takes over from a checkpoint to the canonical format.
        key: signs everything that is written, and verifies everything that is read; None for no signatures.
    """

    def __init__(
        self,
        directory: str | None,
        job_id: str,
        inline_bytes_max: int,
        export: Exporter | None = None,
        key: bytes | None = None,
    ) -> None:
        self._inline_bytes_max = inline_bytes_max
        self._key = key
        self._export = export
        #: the job master's number, once it has one
        self._number = 0
        self._leaders: leadership.Leaders | leadership.KeyedLeaders | None = None
        #: the checkpoints of the job that are known to have metadata
        self._known_ids: set[int] = set()
        #: the checkpoints and marks of previous jobs
        self._left: leadership.LeftByJobs | None = None
        self._fs: Any = None
        self._job_id = job_id
        if directory is not None:
            self._directory = absolute_url(directory)
            self._open()

    def _open(self) -> None:
        self._fs, path = url_to_fs(self._directory)
        self._root = posixpath.join(path, self._job_id)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_fs", "_root", "_leaders")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._fs = self._leaders = None
        if "_directory" in state:
            self._open()

    def _checkpoint_directory(self, checkpoint_id: int) -> str:
        return posixpath.join(self._root, f"chk-{checkpoint_id}")

    # --- state files (workers) -------------------------------------------------------------------------------------

    def write(self, checkpoint_id: int, name: str, data: bytes, savepoint_path: str | None = None) -> StateFile:
        """Store bytes: inline if they are small or no directory is configured."""
        if self._fs is None and savepoint_path is None:
            if len(data) > JOB_MASTER_STATE_BYTES_MAX:
                raise CheckpointError(
                    f"state {name} has {len(data)} bytes, but without execution.checkpointing.dir state is kept in the "
                    f"job master, which accepts at most {JOB_MASTER_STATE_BYTES_MAX}: set a directory"
                )
        elif len(data) > self._inline_bytes_max:
            data = self.stored(data)
            if savepoint_path is not None:
                return self._write_into(savepoint_path, name, data)
            return write_file(self._fs, self._checkpoint_directory(checkpoint_id), name, data)
        return StateFile(len(data), checksum(data), data=data)

    def read(self, file: StateFile) -> bytes:
        """Return the verified bytes of a state file; a transient `OSError` of the file system is passed on."""
        return self.content(file, self._read_stored(file))

    def stored(self, data: bytes) -> bytes:
        """Return the bytes to store for state: with a signature if a key is set."""
        return signed_file(data, self._key)

    def content(self, file: StateFile, stored: bytes) -> bytes:
        """Return the state in a file's bytes; raise `CheckpointError` if they are damaged or not signed by the key."""
        stored = check_file(file, stored)
        return stored if file.path is None else content_of_file(stored, self._key, file.path)

    def _read_stored(self, file: StateFile) -> bytes:
        if file.data is not None:
            return file.data
        assert file.path is not None
        fs, path = self._locate(file.path)
        try:
            data = read_file(fs, path, file.length)
        except (FileNotFoundError, IsADirectoryError) as error:
            # Any other error of the file system says nothing about the file, and may be transient.
            raise CheckpointError(f"{shown(fs, path)} cannot be read: {type(error).__name__}: {error}") from error
        return data

    def _locate(self, path: str) -> tuple[Any, str]:
        """Return the file system of a state file, and the file's path in it."""
        if self._fs is not None and path.startswith(f"{self._root}/"):
            return self._fs, path
        fs, path = url_to_fs(path)
        return fs, path

    def _write_into(self, savepoint_path: str, name: str, data: bytes) -> StateFile:
        fs, directory = url_to_fs(savepoint_path)
        file = write_file(fs, directory, name, data)
        return replace(file, path=posixpath.join(savepoint_path, posixpath.basename(file.path or "")))

    def on_stored(self, checkpoint_id: int, files: Iterable[StateFile]) -> None:
        """Do nothing: the worker keeps nothing."""

    def on_complete(self, checkpoint_id: int) -> None:
        """Do nothing: the worker keeps nothing."""

    def close(self) -> None:
        """Do nothing: the worker keeps nothing."""

    # --- whole checkpoints (job master) ----------------------------------------------------------------------------

    def complete(self, metadata: CheckpointMetadata, savepoint_path: str | None = None) -> str:
        """Write the metadata, last and atomically. A savepoint that ends its job is also recorded among the
        checkpoints.
        """
        metadata = replace(metadata, job_master=self._number)
        if savepoint_path is not None:
            self._complete_savepoint(metadata, savepoint_path)
            if not metadata.ends_job:
                return savepoint_path
        if self._fs is None:
            return savepoint_path or "<job master>"
        directory = self._checkpoint_directory(metadata.checkpoint_id)
        write_metadata(self._fs, directory, metadata, self._key)
        if isinstance(self._leaders, leadership.KeyedLeaders):
            ids = leadership.ids_to_note(self._known_ids, metadata.checkpoint_id)
            self._leaders.note_newest(self._number, leadership.Newest(self._job_id, ids))
        self.check_leads()
        self._known_ids.add(metadata.checkpoint_id)
        return savepoint_path or directory

    def revoke(self, checkpoint_id: int) -> None:
        """Permanently invalidate a checkpoint that may be complete, or become so."""
        if self._fs is not None:
            self.check_leads()  # a successor may have started from it
            revoke_metadata(self._fs, self._checkpoint_directory(checkpoint_id))
            self.check_leads()

    def _complete_savepoint(self, metadata: CheckpointMetadata, savepoint_path: str) -> None:
        """Copy the files that the savepoint shares with checkpoints, then write its metadata."""
        own = f"{savepoint_path}/"

        def contained(file: StateFile) -> StateFile:
            if file.path is None:
                return file
            if not file.path.startswith(own):
                data = self.stored(self.read(file))
                file = self._write_into(savepoint_path, posixpath.basename(file.path), data)
            return replace(file, path=posixpath.basename(file.path or ""))

        fs, directory = url_to_fs(savepoint_path)
        canonical = self._canonical(metadata, savepoint_path).with_files(contained)
        write_metadata(fs, directory, canonical, self._key)

    def _canonical(self, metadata: CheckpointMetadata, savepoint_path: str) -> CheckpointMetadata:
        """Return the metadata of a savepoint whose keyed state any backend can read.

        Tasks write their state in this form. The state of a task that had already finished comes from its last
        checkpoint, where it may be in its backend's own files.
        """
        if self._export is None or not any(s.native for o in metadata.operators for s in o.subtasks.values()):
            return metadata
        operators = []
        for operator in metadata.operators:
            subtasks = dict(operator.subtasks)
            for index, state in operator.subtasks.items():
                keyed = dict(state.keyed)
                for handle in state.native:
                    exported = self._export(handle, self.read, f"operator {operator.name!r}")
                    prefix = f"{operator.operator_id}-{index}-finished"
                    for name, files in self._write_exported(exported, metadata.checkpoint_id, prefix, savepoint_path):
                        groups = handle.first_key_group, handle.last_key_group
                        written = KeyedStateHandle(*groups, files, handle.schemas.get(name, ""))
                        keyed[name] = (*keyed.get(name, ()), written)
                if state.native:
                    subtasks[index] = OperatorSubtaskState(keyed, state.operator)
            operators.append(replace(operator, subtasks=subtasks))
        return replace(metadata, operators=tuple(operators))

    def _write_exported(
        self, exported: Iterable[tuple[str, bytes]], checkpoint_id: int, prefix: str, savepoint_path: str
    ) -> Iterable[tuple[str, tuple[StateFile, ...]]]:
        """Write the files of exported states, and return the files of each state by name."""
        files: dict[str, list[StateFile]] = {}
        for number, (name, data) in enumerate(exported):
            file = self.write(checkpoint_id, f"{prefix}-{number}-{name}", data, savepoint_path)
            files.setdefault(name, []).append(file)
        return [(name, tuple(of_state)) for name, of_state in files.items()]

    def discard_savepoint(self, savepoint_path: str) -> None:
        """Delete the files of a savepoint that did not complete; a complete one stays."""
        savepoints.discard_savepoint(savepoint_path)

    def delete_savepoint(self, savepoint_path: str) -> None:
        """Delete a savepoint or checkpoint, metadata first, so that a half-deleted one never looks complete.

        A directory that this job created for itself is deleted with its contents. In any other directory, files stay
        that the metadata does not name, or that other checkpoints reference.
        """
        self.check_leads()
        if savepoints.belongs_to_job(savepoint_path, self._job_id):
            savepoints.delete_directory(savepoint_path)
            return
        with contextlib.suppress(MissingMetadataError):  # already deleted
            savepoints.delete_snapshot(
                savepoints.open_snapshot(savepoint_path), () if self._fs is None else (posixpath.dirname(self._root),)
            )

    def listing(self) -> list[str]:
        """Return the paths of all files below the job's directory, in the form of `StateFile.path`.

        Where listings may be late, files may be missing or already deleted. Metadata that this master knows of is never
        missing.
        """
        if self._fs is None:
            return []
        self._fs.invalidate_cache(self._root)
        paths: list[str] = self._fs.find(self._root)
        if lists_exactly(self._fs):
            return paths
        known = (
            posixpath.join(self._checkpoint_directory(checkpoint_id), METADATA_NAME)
            for checkpoint_id in self._known_ids
        )
        return sorted({*paths, *known})

    def delete(self, paths: list[str]) -> None:
        """Delete metadata, then state files, then empty directories; missing files are not an error."""
        if self._fs is None:
            return
        self.check_leads()
        together = [p for p in paths if posixpath.basename(p) != METADATA_NAME] if deletes_many(self._fs) else []
        for path in paths if not together else [p for p in paths if posixpath.basename(p) == METADATA_NAME]:
            with contextlib.suppress(FileNotFoundError):
                self._fs.rm_file(path)
            self._known_ids.discard(leadership.id_of_metadata(path, self._job_id))
        if together:
            # The store does not report which deletions it refuses. Such files remain garbage, and the next listing has
            # them.
            self._fs.rm(together)
        if not has_directories(self._fs):
            return
        for directory in {posixpath.dirname(path) for path in paths} | {self._root}:
            # Not empty (a task still writes there), or a file system without directories. HDFS would delete the
            # contents of a directory as well, so list it first.
            with contextlib.suppress(OSError):
                if not self._fs.ls(directory, detail=False):
                    self._fs.rmdir(directory)

    # --- who leads -------------------------------------------------------------------------------------------------

    def join(self, job_name: str) -> None:
        """Begin a new job beside those of the same name."""
        if self._fs is not None:
            savepoints.forget_end(self._fs, self._root)
            self._leaders = self._build_leaders(job_name)
            self._number = self._leaders.highest()

    def take_over(self, job_name: str) -> leadership.LeftByJobs:
        """Depose the job masters of a name; then read the checkpoints and marks of its jobs, and record those that
        count.
        """
        if self._fs is None:
            raise CheckpointError("without execution.checkpointing.dir, jobs leave nothing that could be continued")
        savepoints.forget_end(self._fs, self._root)
        self._leaders = leaders = self._build_leaders(job_name)
        self._number = number = leaders.take(self._job_id)
        before = [master for master in leaders.former(number) if DIRECTORY_OF_JOB.fullmatch(master[1])]
        left = self._read_retained(job_name, leaders).of_master(number, before, self._has_left)
        leaders.note(left.found())
        self._left, self._known_ids = left, left.list_checkpoint_ids(self._job_id)
        return left

    def _build_leaders(self, job_name: str) -> leadership.Leaders | leadership.KeyedLeaders:
        directory = posixpath.join(self._marks.directory, leadership.file_of_name(job_name))
        if lists_exactly(self._fs):
            return leadership.Leaders(self._fs, directory, job_name)
        return leadership.KeyedLeaders(ObjectFiles(self._fs), directory, job_name)

    def _has_left(self, job_id: str) -> bool:
        return bool(self._fs.exists(self._get_job_directory(job_id)))

    def _get_job_directory(self, job_id: str) -> str:
        return posixpath.join(posixpath.dirname(self._root), job_id)

    def delete_jobs(self, job_ids: Iterable[str]) -> None:
        """Delete everything that jobs have left, metadata first."""
        self.check_leads()
        for job_id in job_ids:
            directory = self._get_job_directory(job_id)
            known_ids = set() if self._left is None else self._left.list_checkpoint_ids(job_id)
            if known_ids or self._fs.exists(directory):
                self._fs.invalidate_cache(directory)
                self.delete(leadership.metadata_to_delete(directory, self._fs.find(directory), known_ids))
                with contextlib.suppress(FileNotFoundError):
                    self._fs.rm(directory, recursive=True)

    def check_leads(self) -> None:
        """Raise `DeposedError` if another job master has taken over the job."""
        if self._leaders is not None:
            self._leaders.check(self._number)

    # --- what has become of jobs -----------------------------------------------------------------------------------

    @property
    def _marks(self) -> leadership.JobMarks:
        return leadership.JobMarks(self._fs, posixpath.dirname(self._root))

    def mark_job(self, mark: leadership.JobMark) -> None:
        """Record durably that the job began or ended; does nothing without a directory."""
        if self._fs is None:
            return
        mark = replace(mark, job_master=self._number)
        leaders = self._leaders or self._build_leaders(mark.job_name)
        if isinstance(leaders, leadership.KeyedLeaders):
            record = leaders.found()
            for replaced in leaders.put_mark(mark):
                self._marks.delete_what_ended(replaced, record)
        else:
            self._marks.set(mark, None if self._leaders is None else leaders.found())
        self.check_leads()

    def _read_retained(
        self, job_name: str, leaders: leadership.Leaders | leadership.KeyedLeaders
    ) -> leadership.LeftByJobs:
        """Return the checkpoints and marks of a name's jobs that count.

        Reads the metadata of every checkpoint there.
        """
        before, root = leaders.found(), posixpath.dirname(self._root)
        checkpoint_keys = set(self._marks.checkpoints())
        if isinstance(leaders, leadership.KeyedLeaders):
            checkpoint_keys |= leaders.known_checkpoints(before)

        def get_directory(job_id: str, checkpoint_id: int) -> str:
            path: str = self._fs.unstrip_protocol(posixpath.join(root, job_id, f"chk-{checkpoint_id}"))
            return path

        checkpoints = leadership.read_left(checkpoint_keys, before, get_directory, self.load)
        for left in checkpoints:
            sync_found(self._fs, posixpath.join(root, left.job_id, f"chk-{left.checkpoint_id}"))
        set_marks, damaged = self._marks.of_name(job_name)
        self._marks.sync()
        if isinstance(leaders, leadership.KeyedLeaders):
            keyed, more = leaders.marks()
            set_marks, damaged = [*set_marks, *keyed], [*damaged, *more]
        counting = [
            mark for mark in set_marks if leadership.mark_counts(before, mark.job_id, mark.status, mark.job_master)
        ]
        return leadership.LeftByJobs(leadership.of_name(job_name, checkpoints), tuple(counting), damaged=tuple(damaged))

    # --- reading ---------------------------------------------------------------------------------------------------

    def load_checkpoint(self, checkpoint_id: int) -> CheckpointMetadata:
        """Read one of the job's checkpoints."""
        directory = self._checkpoint_directory(checkpoint_id)
        metadata = load_metadata(self._fs, directory, self._key)
        if (metadata.job_id, metadata.checkpoint_id) != (self._job_id, checkpoint_id):
            raise CheckpointError(
                f"{shown(self._fs, directory)} holds metadata of checkpoint {metadata.checkpoint_id}, not its own"
            )
        return metadata

    def load(self, path: str, job_name: str | None = None, claims: bool = False) -> CheckpointMetadata:
        """Read a savepoint, or a checkpoint of any job, by its directory or its metadata file (H4)."""
        path = path.rstrip("/").removesuffix(f"/{METADATA_NAME}")
        fs, directory = url_to_fs(path)

        def located(file: StateFile) -> StateFile:
            if file.path is None:
                return file
            name = file.path if "/" in file.path else posixpath.join(directory, file.path)
            url = name if "://" in name else fs.unstrip_protocol(name)
            return replace(file, path=url)

        metadata = load_metadata(fs, directory, self._key).with_files(located)
        if job_name is not None:
            sync_found(fs, directory)
            savepoints.check_or_claim_snapshot(path, job_name, self._job_id, claims)
        return replace(metadata, external_path=fs.unstrip_protocol(directory))

    def verify(self, metadata: CheckpointMetadata) -> None:
        """Read every file once; raise `CheckpointError` for the first that is missing or damaged."""
        self.check_leads()
        is_checkpoint = metadata.external_path is None or metadata.ends_job
        if self._fs is not None and is_checkpoint and metadata.job_id == self._job_id:
            stored = load_metadata(self._fs, self._checkpoint_directory(metadata.checkpoint_id), self._key)
            if stored != replace(metadata, job_master=stored.job_master):
                raise CheckpointError(f"the metadata of checkpoint {metadata.checkpoint_id} is not what was written")
        for file in metadata.state_files():
            self.read(file)


_log = logging.getLogger("penstock.storage")


class Storage(Protocol):
    """The storage that the copies speed up."""

    def write(self, checkpoint_id: int, name: str, data: bytes, savepoint_path: str | None = None) -> StateFile: ...

    def read(self, file: StateFile) -> bytes: ...


class LocalCopies:
    """State storage of one worker; `copies` holds bytes by path. Without `reads`, copies are only written.

    Tasks write in the background, several at a time. `warn` is called for the first copy that cannot be written.
    `stored` and `content` convert state to the bytes of a file and back, as the store does.
    """

    def __init__(
        self,
        storage: Storage,
        copies: MutableMapping[str, bytes],
        reads: bool = True,
        warn: Callable[[str], None] = _log.warning,
        stored: Callable[[bytes], bytes] = bytes,
        content: Callable[[StateFile, bytes], bytes] = check_file,
    ) -> None:
        #: number of files, and of bytes, read from copies and from the store
        self.read_locally = self.read_remotely = self.bytes_locally = self.bytes_remotely = 0
        self._storage = storage
        self._copies = copies
        self._reads = reads
        #: the last checkpoint known to need a copy
        self._needed_by: dict[str, int] = {}
        self._completed_id = 0
        self._lock = threading.Lock()
        self._warn = warn
        self._stored, self._content = stored, content
        self._has_failed = False

    def write(self, checkpoint_id: int, name: str, data: bytes, savepoint_path: str | None = None) -> StateFile:
        """Store bytes, and keep a copy if they have their own file and do not belong to a savepoint."""
        file = self._storage.write(checkpoint_id, name, data, savepoint_path)
        if file.path is not None and savepoint_path is None:
            self._drop_unneeded()
            try:
                self._copies[file.path] = self._stored(data)
            except OSError as error:
                self._on_failure(error)
            else:
                with self._lock:
                    self._needed_by[file.path] = checkpoint_id
        return file

    def read(self, file: StateFile) -> bytes:
        """Return the copy if it is intact, otherwise the file itself."""
        if self._reads and file.path is not None:
            try:
                data = self._content(file, self._copies[file.path])
            except (KeyError, OSError, CheckpointError):
                pass
            else:
                self.read_locally += 1
                self.bytes_locally += file.length
                return data
        data = self._storage.read(file)
        if file.path is not None:
            self.read_remotely += 1
            self.bytes_remotely += file.length
        return data

    def on_stored(self, checkpoint_id: int, files: Iterable[StateFile]) -> None:
        """Note that a task's part of a checkpoint consists of these files, some from earlier checkpoints."""
        with self._lock:
            for file in files:
                if file.path in self._needed_by:
                    self._needed_by[file.path] = max(self._needed_by[file.path], checkpoint_id)

    def on_complete(self, checkpoint_id: int) -> None:
        """Note that a checkpoint completed: the next write removes copies that only earlier ones need."""
        self._completed_id = max(self._completed_id, checkpoint_id)

    def close(self) -> None:
        """Remove the copies when the worker ends."""
        with self._lock:
            self._needed_by.clear()
        self._copies.clear()

    def _drop_unneeded(self) -> None:
        with self._lock:
            unneeded = [path for path, needed_by in self._needed_by.items() if needed_by < self._completed_id]
            for path in unneeded:
                del self._needed_by[path]
        for path in unneeded:
            self._copies.pop(path, None)

    def _on_failure(self, error: OSError) -> None:
        if not self._has_failed:
            self._has_failed = True
            self._warn(f"state could not be copied to this worker's disk and will be read from the store: {error}")
