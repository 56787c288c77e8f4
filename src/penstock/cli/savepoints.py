"""Snapshots below a directory, the contents of one, and what differs between two (H5).

They are the commands `penstock state ls`, `penstock savepoint show` and `penstock state diff`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.base.errors import OperationError, short_repr
from penstock.cli.console import size_text
from penstock.codecs.file_systems import url_to_fs
from penstock.codecs.pickling import dumps
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
    files, root = url_to_fs(directory)
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
    if state.kind == "columns":
        return sum(len(part.table()) for part in reader.split_columns(operator.operator_id, state.name))
    return reader.read_keyed_state(operator.operator_id, state.name).count()


def _parallelism(operator: OperatorListing) -> Text:
    finished = f", {len(operator.finished)} finished" if operator.finished else ""
    return Text(f"{operator.parallelism} of {operator.max_parallelism}{finished}")


# --- differences ------------------------------------------------------------------------------------------------------

#: About how much of the files of a state is compared at a time (bytes).
COMPARED_BYTES: Final = 64 << 20
_NOTHING: Final = object()
_ID_DIGITS: Final = 32


@dataclass
class StateDifference:
    """How a state differs between two snapshots.

    Attributes:
        operator: the uid of the operator, or its id.
        name: the name of the operator in plans.
        state: the name of the state.
        before: the number of entries in the first snapshot.
        after: the number of entries in the second one.
        added: the number of entries that only the second one has.
        removed: the number of entries that only the first one has.
        changed: the number of keys whose values differ. Rows of columns and items of lists have no key: a changed one
            is removed and added.
        examples: some of these entries, a line each.
    """

    operator: str
    name: str
    state: str
    before: int = 0
    after: int = 0
    added: int = 0
    removed: int = 0
    changed: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        """Whether the state is the same in both."""
        return not (self.added or self.removed or self.changed)

    def note(self, line: str, examples: int) -> None:
        """Add an example, if there are not enough yet."""
        if len(self.examples) < examples:
            self.examples.append(line)


def compare(first: str, second: str, examples: int = 0) -> list[StateDifference]:
    """Return how each state differs between two snapshots; operators are matched by their ids.

    Both are read a range of key groups at a time, if they have the same maximum parallelism.

    Args:
        first: the directory of a savepoint or checkpoint.
        second: that of another one.
        examples: the maximum number of examples for each state.

    Raises:
        CheckpointError: if one does not exist or is damaged.
        StateError: if a state is in files that only a job can read.
    """
    readers = SavepointReader.read(first), SavepointReader.read(second)
    listings = [{operator.operator_id: operator for operator in reader.operators} for reader in readers]
    differences = []
    for operator_id in {**listings[0], **listings[1]}:
        sides = [
            (reader, listing[operator_id])
            for reader, listing in zip(readers, listings, strict=True)
            if operator_id in listing
        ]
        for _, operator in sides:
            if operator.native_bytes:
                raise OperationError(
                    f"the keyed state of {operator.uid or operator.name!r} is in files of RocksDB, which only a job "
                    "can read: compare savepoints"
                )
        names = {state.name: state for _, operator in sides for state in operator.states}
        for state in names.values():
            about = sides[-1][1]
            difference = StateDifference(about.uid or operator_id, about.name, state.name)
            _compare_state(readers, listings, operator_id, state, difference, examples)
            differences.append(difference)
    return differences


def _compare_state(
    readers: tuple[SavepointReader, SavepointReader],
    listings: list[dict[str, OperatorListing]],
    operator_id: str,
    state: StateListing,
    difference: StateDifference,
    examples: int,
) -> None:
    sides = []
    for reader, listing in zip(readers, listings, strict=True):
        operator = listing.get(operator_id)
        has_state = operator is not None and any(known.name == state.name for known in operator.states)
        sides.append(reader if has_state else None)
    if state.mode != "keyed" or state.kind == "columns":
        rows = [_list_rows(reader, operator_id, state) for reader in sides]
        _compare_rows(rows[0], rows[1], difference, examples)
        return
    sizes = {listing[operator_id].max_parallelism for listing in listings if operator_id in listing}
    pieces = 1 if len(sizes) > 1 else -(-state.size_bytes // COMPARED_BYTES)
    for entries in _pair_ranges(sides, operator_id, state.name, pieces):
        _compare_entries(entries, difference, examples)


def _list_rows(reader: SavepointReader | None, operator_id: str, state: StateListing) -> list[Any]:
    """Return the rows of columns, or the items of an operator state."""
    if reader is None:
        return []
    if state.kind == "columns":
        tables = (part.table() for part in reader.split_columns(operator_id, state.name))
        return [row for table in tables for row in table.drop_columns(["key_group"]).to_pylist()]
    return [item for _, _, item in reader.read_operator_state(operator_id, state.name)]


def _compare_rows(before: list[Any], after: list[Any], difference: StateDifference, examples: int) -> None:
    difference.before, difference.after = len(before), len(after)
    pickles = list(map(dumps, before)), list(map(dumps, after))
    values = dict(zip(chain(*pickles), chain(before, after), strict=True))
    counts = Counter(pickles[0]), Counter(pickles[1])
    removed, added = counts[0] - counts[1], counts[1] - counts[0]
    difference.removed, difference.added = removed.total(), added.total()
    for sign, rows in (("-", removed), ("+", added)):
        for data in rows.elements():
            difference.note(f"{sign} {_text(values[data])}", examples)


def _pair_ranges(
    sides: list[SavepointReader | None], operator_id: str, name: str, pieces: int
) -> Iterator[tuple[dict[Hashable, Any], dict[Hashable, Any]]]:
    """Yield the entries of both snapshots, a range of key groups at a time."""
    ranges = [
        None if reader is None else reader.split_by_key(operator_id, [name], pieces, with_namespaces=True)
        for reader in sides
    ]
    for number in range(max(len(parts) for parts in ranges if parts is not None)):
        before, after = (
            {} if parts is None else _list_entries(row for part in parts[number][0] for row in part.rows())
            for parts in ranges
        )
        yield before, after


def _list_entries(rows: Iterable[tuple[Any, ...]]) -> dict[Hashable, Any]:
    return {(key, namespace): value for key, namespace, value in rows}


def _compare_entries(
    entries: tuple[dict[Hashable, Any], dict[Hashable, Any]], difference: StateDifference, examples: int
) -> None:
    before, after = entries
    difference.before += len(before)
    difference.after += len(after)
    for key, value in before.items():
        now = after.get(key, _NOTHING)
        if now is _NOTHING:
            difference.removed += 1
            difference.note(f"- {_key_text(key)}: {_text(value)}", examples)
        elif not _are_equal(value, now):
            difference.changed += 1
            difference.note(f"~ {_key_text(key)}: {_text(value)} -> {_text(now)}", examples)
    for key in after.keys() - before.keys():
        difference.added += 1
        difference.note(f"+ {_key_text(key)}: {_text(after[key])}", examples)


def _key_text(entry: Any) -> str:
    key, namespace = entry
    return _text(key) if namespace is None else f"{_text(key)} in {_text(namespace)}"


def _text(value: Any) -> str:
    return short_repr(value)


def _are_equal(left: Any, right: Any) -> bool:
    """Compare values. Pickles decide if a value such as NaN does not equal itself."""
    try:
        if left == right:
            return True
    except Exception:  # noqa: BLE001 - a user's class may compare in any way, for example as an array
        pass
    return dumps(left) == dumps(right)


def render_differences(differences: list[StateDifference], first: str, second: str) -> Table:
    """Return the states that differ as a table."""
    table = Table(box=box.SIMPLE, title=f"{first} -> {second}", title_justify="left")
    for name in ("operator", "state"):
        table.add_column(name, overflow="fold")
    for name in ("before", "after", "added", "removed", "changed"):
        table.add_column(name, justify="right")
    for difference in differences:
        counts = (difference.before, difference.after, difference.added, difference.removed, difference.changed)
        name = difference.operator if len(difference.operator) < _ID_DIGITS else difference.name
        table.add_row(Text(name), Text(difference.state), *(Text(f"{count:,}") for count in counts))
    return table
