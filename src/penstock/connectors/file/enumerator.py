"""Discovers the files of a file source and hands out their splits.

Splits are assigned in order of path and offset, each to the next reader that requests one. If files are named by time,
readers therefore stay close together in time.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import TypedDict

from penstock.connectors.file.filesystem import FileInfo, list_files
from penstock.connectors.file.split import FileSplit, plan_splits
from penstock.core.connector import SplitEnumerator, SplitEnumeratorContext

_LOG = logging.getLogger(__name__)


class FileEnumeratorState(TypedDict):
    """The state of an enumerator: unassigned splits, and every discovered file with its modification time (ms)."""

    pending: list[FileSplit]
    seen: dict[str, int | None]
    listed: bool


class FileEnumerator(SplitEnumerator[FileSplit]):
    """Hands out the splits of a fixed set of files, or of all files that appear in monitored paths (G8).

    Args:
        context: the runtime context of the enumerator.
        paths: files, directories and glob patterns.
        splittable: whether the format lets a file be read from the middle.
        split_bytes: the split size in bytes; None for a size that gives each reader one split.
        interval_ms: the time between two discoveries; None to discover files once.
        restored: the state to resume from.

    A failed discovery fails the job, because it raises in the job master. In a bounded source, a path that matches
    nothing is such a failure; a monitored path may still be empty.
    """

    def __init__(
        self,
        context: SplitEnumeratorContext[FileSplit],
        paths: Sequence[str],
        splittable: bool,
        split_bytes: int | None,
        interval_ms: int | None,
        restored: FileEnumeratorState | None = None,
    ) -> None:
        self._context = context
        self._paths = tuple(paths)
        self._splittable = splittable
        self._split_bytes = split_bytes
        self._interval_ms = interval_ms
        self._pending: deque[FileSplit] = deque(restored["pending"] if restored else ())
        self._given_back: deque[FileSplit] = deque()
        self._seen: dict[str, int | None] = dict(restored["seen"]) if restored else {}
        self._listed = restored is not None and restored["listed"]
        self._waiting: dict[int, None] = {}  # an ordered set of subtasks

    def start(self) -> None:
        """Start discovering files."""
        if not self._listed or self._interval_ms is not None:
            self._context.call_async(self._look, self._found)

    def handle_split_request(self, subtask_index: int) -> None:
        """Assign the next split as soon as one is available."""
        self._waiting[subtask_index] = None
        self._assign()

    def add_splits_back(self, splits: Sequence[FileSplit], subtask_index: int) -> None:
        """Return splits to the front of the queue, in order even if they come from several readers."""
        self._waiting.pop(subtask_index, None)
        self._given_back = deque(sorted([*splits, *self._given_back], key=lambda split: split.order))
        self._assign()

    def snapshot_state(self, checkpoint_id: int) -> FileEnumeratorState:
        """Return the unassigned splits and the discovered files."""
        pending = [*self._given_back, *self._pending]
        return FileEnumeratorState(pending=pending, seen=dict(self._seen), listed=self._listed)

    def _look(self) -> list[FileInfo]:
        """List all files. Runs in the background, so it accesses no mutable state."""
        watching = self._interval_ms is not None
        files: dict[str, FileInfo] = {}
        for path in self._paths:
            try:
                files.update((file.path, file) for file in list_files(path))
            except FileNotFoundError:
                if not watching:
                    raise
        return [files[path] for path in sorted(files)]

    def _found(self, files: list[FileInfo] | None, error: BaseException | None) -> None:
        if error is not None:
            raise error
        for file in files or ():
            self._take(file)
        self._listed = True
        self._assign()
        if self._interval_ms is not None:
            self._context.call_async(self._look, self._found, self._interval_ms)

    def _take(self, file: FileInfo) -> None:
        if file.path in self._seen:
            if self._seen[file.path] != file.modified_ms:
                _LOG.warning("%s changed after it was discovered; data added since then is not read", file.path)
                self._seen[file.path] = file.modified_ms
            return
        self._seen[file.path] = file.modified_ms
        self._pending.extend(plan_splits(file, self._splittable, self._split_bytes, self._context.parallelism))

    def _next(self) -> FileSplit | None:
        """Remove the next split from the queue and return it."""
        left = self._given_back or self._pending
        return left.popleft() if left else None

    def _assign(self) -> None:
        while self._waiting and (split := self._next()) is not None:
            subtask_index = next(iter(self._waiting))
            del self._waiting[subtask_index]
            self._context.assign_split(split, subtask_index)
        if self._listed and self._interval_ms is None and not self._given_back and not self._pending:
            for subtask_index in self._waiting:
                self._context.signal_no_more_splits(subtask_index)
            self._waiting.clear()
