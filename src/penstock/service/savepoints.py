"""What `penstock savepoint show` prints (H5)."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.state_processor import OperatorListing, SavepointReader, StateListing


def show(path: str, count: bool, console: Console) -> None:
    """Print the operators and states of a savepoint; with `count`, keyed states are read for their entries.

    Raises:
        CheckpointError: if there is no savepoint, or it is damaged.
    """
    reader = SavepointReader.read(path)
    kind = "savepoint" if reader.is_savepoint else "checkpoint"
    size = _bytes(reader.metadata.state_bytes)
    taken = reader.taken_at.strftime("%Y-%m-%d %H:%M:%S UTC")
    console.print(Text(f"{kind} {reader.checkpoint_id} of job {reader.job_name!r}, {taken}, {size}"))
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


def _states(reader: SavepointReader, operator: OperatorListing, count: bool) -> list[list[Text]]:
    rows = [
        [
            Text(state.name),
            Text(state.kind or ""),
            Text(state.mode),
            Text(_entries(reader, operator, state, count)),
            Text(_bytes(state.size_bytes)),
        ]
        for state in operator.states
    ]
    if operator.enumerator_bytes is not None:
        rows.append([*map(Text, ("(split enumerator)", "", "", "", _bytes(operator.enumerator_bytes)))])
    if operator.native_bytes:
        rows.append([*map(Text, ("(keyed state)", "", "native", "", _bytes(operator.native_bytes)))])
    return rows or [[Text("-"), Text(), Text(), Text(), Text()]]


def _entries(reader: SavepointReader, operator: OperatorListing, state: StateListing, count: bool) -> str:
    if state.items is not None:
        return f"{state.items:,}"
    if not count:
        return ""
    return f"{reader.read_keyed_state(operator.operator_id, state.name).count():,}"


def _parallelism(operator: OperatorListing) -> Text:
    finished = f", {len(operator.finished)} finished" if operator.finished else ""
    return Text(f"{operator.parallelism} of {operator.max_parallelism}{finished}")


def _bytes(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} GiB"
