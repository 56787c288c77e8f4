"""A job's checkpoint storage as used by one of its masters: with that master's number, like a file system store."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from penstock.drivers.simulation.store import MemoryStore
from penstock.storage.job_marks import JobMark, LeftByJobs, id_of_metadata
from penstock.storage.leadership import DeposedError, checkpoint_counts
from penstock.storage.metadata import CheckpointMetadata


class LeadingStore:
    """The port `CheckpointStore` of one job master."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._number = 0
        self._known_ids: set[int] = set()
        self._left: LeftByJobs | None = None
        #: called between the steps of a call, where other processes may act
        self.between: Callable[[], None] = lambda: None

    def join(self, job_name: str) -> None:
        self._number = self._store.known_leader()

    def take_over(self, job_name: str) -> LeftByJobs:
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
        return checkpoint_counts(self._store.found(), self._store.job_id, checkpoint_id, self._number)

    @property
    def may_lead(self) -> bool:
        """Whether it was not deposed, or has yet to take over the job."""
        return self._number in (0, self._store.leader())

    def check_leads(self) -> None:
        if self._store.is_deposed(self._number):
            raise DeposedError(self._store.job_id, "another job master has taken the job over")

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
            self._known_ids.discard(id_of_metadata(path, self._store.job_id))

    def delete_jobs(self, job_ids: Iterable[str]) -> None:
        self.check_leads()
        self._store.delete_jobs(job_ids, self._left)

    def load_checkpoint(self, checkpoint_id: int) -> CheckpointMetadata:
        return self._store.load_checkpoint(checkpoint_id)

    def load(self, path: str, job_name: str | None = None, claims: bool = False) -> CheckpointMetadata:
        return self._store.load(path)

    def mark_job(self, mark: JobMark) -> None:
        self._store.mark_job(replace(mark, job_master=self._number))
        self.check_leads()

    def verify(self, metadata: CheckpointMetadata) -> None:
        self.check_leads()
        self._store.verify(metadata)
