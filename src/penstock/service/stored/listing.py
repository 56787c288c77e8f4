"""Savepoints and checkpoints below a directory, for `penstock state ls`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

import fsspec
from rich import box
from rich.table import Table
from rich.text import Text

from penstock.base.errors import OperationError
from penstock.service.stored.sizes import size_text
from penstock.state_processor import SavepointReader

#: The maximum depth (directories) of metadata: `<dir>/<job id>/chk-<n>/_metadata`.
DEPTH: Final = 3


@dataclass(frozen=True, slots=True)
class Stored:
    """A savepoint or checkpoint, according to `kind`; `taken_at` in ISO 8601 (UTC), `state_bytes` of all its files."""

    path: str
    kind: str
    checkpoint_id: int
    job_name: str
    taken_at: str
    state_bytes: int

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary, for JSON."""
        return asdict(self)


def stored(directory: str) -> list[Stored]:
    """Return all savepoints and checkpoints below a directory, oldest first.

    Raises:
        OperationError: if the directory does not exist.
        CheckpointError: if one is damaged.
    """
    files, root = fsspec.url_to_fs(directory)
    if not files.isdir(root):
        raise OperationError(f"{directory} is no directory")
    paths = [files.unstrip_protocol(path) for path in files.glob(f"{root}/**/_metadata", maxdepth=DEPTH)]
    return sorted(
        (_described(path.removesuffix("/_metadata")) for path in paths), key=lambda snapshot: snapshot.taken_at
    )


def render_table(snapshots: list[Stored]) -> Table:
    """Return the listing as a table."""
    table = Table(box=box.SIMPLE)
    for name in ("taken (UTC)", "kind", "id", "job", "size", "path"):
        table.add_column(name, justify="right" if name in ("id", "size") else "left", overflow="fold")
    for snapshot in snapshots:
        taken_at = snapshot.taken_at[:19].replace("T", " ")
        cells = (
            taken_at,
            snapshot.kind,
            str(snapshot.checkpoint_id),
            snapshot.job_name,
            size_text(snapshot.state_bytes),
            snapshot.path,
        )
        table.add_row(*map(Text, cells))
    return table


def _described(path: str) -> Stored:
    reader = SavepointReader.read(path)
    kind = "savepoint" if reader.is_savepoint else "checkpoint"
    name, size = reader.job_name, reader.metadata.state_bytes
    return Stored(path, kind, reader.checkpoint_id, name, reader.taken_at.isoformat(), size)
