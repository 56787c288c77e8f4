"""Looks up an earlier commit in a table's snapshots when the ledger does not know it, or no longer does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.base.errors import PenstockError
from penstock.connectors.iceberg.ledger import SUMMARY, CommitName
from penstock.connectors.iceberg.staged import Staged, StagedFiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

#: How far the clocks of two hosts may differ (ms).
SKEW_MS: Final = 3_600_000


class CommitError(PenstockError, RuntimeError):
    """Prepared files or changes cannot be committed, and retrying does not help."""

    suppresses_restart = True


def was_committed(table: Table, staged: Staged, now_ms: int, retention_ms: int, title: str) -> bool:
    """Return whether a snapshot that still exists contains this committable.

    Raises:
        CommitError: if this can no longer be determined.
    """
    since = _snapshots_since(table, staged.name.prepared_ms - SKEW_MS)
    if any(_mentions_commit(snapshot, staged.name) for snapshot in since):
        return True
    if isinstance(staged, StagedFiles):
        paths = {file["file_path"] for file in staged.files}
        if _has_any(table, since, paths):
            return True
        missing = sorted(path for path in paths if not table.io.new_input(path).exists())
        if missing:
            raise CommitError(
                f"cannot commit to table {title}: {len(missing)} data files that a checkpoint or savepoint names are "
                f"gone, and no snapshot that is still known has them ({missing[0]}). Either they were committed, "
                "rewritten by a compaction and removed with expired snapshots, or somebody has removed files that were "
                "not committed yet. Start from a later checkpoint or savepoint; let remove_orphan_files and "
                "expire_snapshots keep what is younger than the oldest savepoint from which jobs begin"
            )
        return False
    if staged.name.prepared_ms < now_ms - retention_ms:
        raise CommitError(
            f"cannot commit changes by key to table {title}: they were prepared {_days(now_ms, staged)} days ago, and "
            "neither the table's ledger nor its snapshots remember that long, so they may be in the table and replaced "
            "since. Start from a later savepoint, or set a longer ledger_retention on the sink"
        )
    return False


def _days(now_ms: int, staged: Staged) -> int:
    return (now_ms - staged.name.prepared_ms) // 86_400_000


def _snapshots_since(table: Table, since_ms: int) -> Sequence[Snapshot]:
    return [snapshot for snapshot in table.metadata.snapshots if snapshot.timestamp_ms >= since_ms]


def _mentions_commit(snapshot: Snapshot, name: CommitName) -> bool:
    text = None if snapshot.summary is None else snapshot.summary.get(SUMMARY)
    return text is not None and str(name) in text.split(" ")


def _has_any(table: Table, snapshots: Sequence[Snapshot], paths: set[str]) -> bool:
    """Return whether one of these snapshots contains or has removed one of the files.

    Skips manifests added by an older snapshot that the table still knows. An expired snapshot may be as recent as
    these.
    """
    older = {known.snapshot_id for known in table.metadata.snapshots} - {recent.snapshot_id for recent in snapshots}
    seen: set[str] = set()
    for snapshot in snapshots:
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in seen or manifest.added_snapshot_id in older:
                continue
            seen.add(manifest.manifest_path)
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                if entry.data_file.file_path in paths:
                    return True
    return False
