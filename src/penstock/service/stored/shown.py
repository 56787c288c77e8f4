"""The output of `penstock savepoint show` (H5)."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.service.stored.sizes import size_text
from penstock.state_processor import OperatorListing, SavepointReader, StateListing


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
        "operators": [_described(reader, operator, count) for operator in reader.operators],
    }


def _described(reader: SavepointReader, operator: OperatorListing, count: bool) -> dict[str, Any]:
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
