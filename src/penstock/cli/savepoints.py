"""`penstock state ls` and `penstock savepoint show`: snapshots below a directory, and the contents of one (H5)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

import fsspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.base.errors import OperationError
from penstock.cli.console import size_text
from penstock.state_processor import OperatorListing, SavepointReader, StateListing

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


def show(path: str, count: bool, console: Console) -> None:
    """Print the operators and states of a savepoint; with `count`, read keyed states to count their entries.

    Raises:
        CheckpointError: if the savepoint does not exist or is damaged.
    """
    reader = SavepointReader.read(path)
    kind = "savepoint" if reader.is_savepoint else "checkpoint"
    size = size_text(reader.metadata.state_bytes)
    taken_at = reader.taken_at.strftime("%Y-%m-%d %H:%M:%S UTC")
    console.print(Text(f"{kind} {reader.checkpoint_id} of job {reader.job_name!r}, {taken_at}, {size}"))
    table = Table(box=box.SIMPLE)
    for name in ("operator", "uid", "parallelism", "state", "kind", "mode"):
        table.add_column(name)
    for name in ("entries", "size"):
        table.add_column(name, justify="right")
    for operator in reader.operators:
        cells = [Text(operator.name), Text(operator.uid or "-"), _parallelism(operator)]
        for row in _states(reader, operator, count):
            table.add_row(*cells, *row)
            cells = [Text(), Text(), Text()]
    console.print(table)


def described(path: str, count: bool) -> dict[str, Any]:
    """Return the same information as plain values, for JSON.

    Raises:
        CheckpointError: if the savepoint does not exist or is damaged.
    """
    reader = SavepointReader.read(path)
    return {
        "path": path,
        "kind": "savepoint" if reader.is_savepoint else "checkpoint",
        "id": reader.checkpoint_id,
        "job": reader.job_name,
        "taken": reader.taken_at.isoformat(),
        "bytes": reader.metadata.state_bytes,
        "operators": [_state_described(reader, operator, count) for operator in reader.operators],
    }


def _state_described(reader: SavepointReader, operator: OperatorListing, count: bool) -> dict[str, Any]:
    states = [
        {
            "name": state.name,
            "kind": state.kind,
            "mode": state.mode,
            "entries": _counted(reader, operator, state, count),
            "bytes": state.size_bytes,
        }
        for state in operator.states
    ]
    return {
        "id": operator.operator_id,
        "name": operator.name,
        "uid": operator.uid,
        "parallelism": operator.parallelism,
        "maxParallelism": operator.max_parallelism,
        "enumeratorBytes": operator.enumerator_bytes,
        "nativeBytes": operator.native_bytes,
        "states": states,
    }


def _states(reader: SavepointReader, operator: OperatorListing, count: bool) -> list[list[Text]]:
    rows = [
        [
            Text(state.name),
            Text(state.kind or ""),
            Text(state.mode),
            Text(_entries(reader, operator, state, count)),
            Text(size_text(state.size_bytes)),
        ]
        for state in operator.states
    ]
    if operator.enumerator_bytes is not None:
        rows.append([*map(Text, ("(split enumerator)", "", "", "", size_text(operator.enumerator_bytes)))])
    if operator.native_bytes:
        rows.append([*map(Text, ("(keyed state)", "", "native", "", size_text(operator.native_bytes)))])
    return rows or [[Text("-"), Text(), Text(), Text(), Text()]]


def _entries(reader: SavepointReader, operator: OperatorListing, state: StateListing, count: bool) -> str:
    entries = _counted(reader, operator, state, count)
    return "" if entries is None else f"{entries:,}"


def _counted(reader: SavepointReader, operator: OperatorListing, state: StateListing, count: bool) -> int | None:
    if state.items is not None or not count:
        return state.items
    return reader.read_keyed_state(operator.operator_id, state.name).count()


def _parallelism(operator: OperatorListing) -> Text:
    finished = f", {len(operator.finished)} finished" if operator.finished else ""
    return Text(f"{operator.parallelism} of {operator.max_parallelism}{finished}")
