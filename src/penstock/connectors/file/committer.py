"""Makes part files visible: the second phase of a file sink's commit (G9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.common.errors import PenstockError
from penstock.connectors.file.filesystem import remove, rename, size_or_none
from penstock.core.connector import Committer


class CommitError(PenstockError):
    """A part file that was promised cannot be made visible, because it is gone or torn."""


@dataclass(frozen=True, slots=True)
class FileCommittable:
    """A closed part file: where it lies hidden, where it shall be seen, and its length."""

    hidden_path: str
    final_path: str
    size_bytes: int


class FileCommitter(Committer[FileCommittable]):
    """Renames part files to their final names; doing so again changes nothing.

    | hidden file | final file | then |
    | --- | --- | --- |
    | whole | none | rename |
    | none | whole | it was committed before |
    | whole | whole | a move by copy and delete stopped half-way: delete the hidden one |
    | whole | torn | a copy stopped half-way: rename again |
    | torn | any, or both none | CommitError |
    | none | torn | CommitError |
    """

    def commit(self, committables: Sequence[FileCommittable]) -> None:
        """Commits all in order.

        Raises:
            CommitError: if a part file is missing or has not the length it was promised with.
        """
        for committable in committables:
            self._commit(committable)

    def _commit(self, committable: FileCommittable) -> None:
        hidden, final, size_bytes = committable.hidden_path, committable.final_path, committable.size_bytes
        hidden_bytes = size_or_none(hidden)
        final_bytes = size_or_none(final)
        if final_bytes == size_bytes:
            if hidden_bytes is not None:
                remove([hidden])
        elif hidden_bytes == size_bytes:
            rename(hidden, final)
        elif hidden_bytes is None:
            found = "it is missing" if final_bytes is None else f"{final_bytes} bytes are there"
            raise CommitError(f"cannot commit {final}: {found}, {size_bytes} bytes are expected, {hidden} is gone")
        else:
            raise CommitError(f"cannot commit {final}: {hidden} has {hidden_bytes} bytes, {size_bytes} are expected")
