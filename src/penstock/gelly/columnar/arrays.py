"""The arrays of one partition of a graph, and the flow of values along its edges.

Edges are sorted by target. A partition has a *slot* for each vertex of any partition that its edges lead to; slots are
ordered by the partitions that own the vertices. At the beginning, it sends each owner the ids of the vertices in its
slots, in order. From then on only values travel, and an owner knows where they belong.

Combination of the values that arrive at one vertex.

Columns of vertex ids: Arrow arrays of integers or text, or lists of any other keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.gelly.base.streams import Owners, assign_integer_owners
from penstock.runtime.columns.batch import ColumnBatch
from penstock.runtime.records import Batch


class Combine(Enum):
    """How several values for one vertex are combined."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"
    #: Not at all: the vertex gets all of them.
    NONE = "none"


@dataclass(frozen=True)
class Inbox:
    """The values that arrived for the vertices of a partition.

    Attributes:
        values: if combined, one for each vertex, undefined where `has` is false (0 for `Combine.SUM`). Otherwise all
            values that arrived, in the order of the vertices.
        has: whether anything arrived for a vertex.
        offsets: with `Combine.NONE`, vertex i has `values[offsets[i] : offsets[i + 1]]`; otherwise None.
    """

    values: Any
    has: Any
    offsets: Any = None


def get_identity(combine: Combine, kind: Any) -> Any:
    """Return the identity of the combination for a type: combining it with a value leaves the value unchanged."""
    if combine is Combine.SUM:
        return kind.type(0)
    is_least = combine is Combine.MAX
    if kind.kind == "f":
        return kind.type(-np.inf if is_least else np.inf)
    if kind.kind == "b":
        return np.bool_(not is_least)
    limits = np.iinfo(kind)
    return kind.type(limits.min if is_least else limits.max)


#: The functions that combine values.
UFUNCS = {Combine.SUM: np.add, Combine.MIN: np.minimum, Combine.MAX: np.maximum}


#: An Arrow array, or a list.
Ids = Any


def to_id_column(values: Sequence[Any]) -> Ids:
    """Return a column of ids: an Arrow array if all are 64-bit integers, or all are text."""
    kinds = set(map(type, values))
    if kinds == {int}:
        try:
            return pa.array(values, pa.int64())
        except (OverflowError, pa.ArrowInvalid):
            return list(values)
    return pa.array(values, pa.string()) if kinds == {str} else list(values)


def ids_of_column(column: Any) -> Ids:
    """Return the same for an Arrow array."""
    if pa.types.is_integer(column.type) and column.type != pa.uint64() and not column.null_count:
        return column.cast(pa.int64())
    if column.type == pa.string() and not column.null_count:
        return column
    return to_id_column(column.to_pylist())


def joined(parts: Sequence[Ids]) -> Ids:
    """Join several columns into one."""
    types = {part.type if isinstance(part, pa.Array) else None for part in parts if len(part)}
    if not types:
        return pa.array([], pa.int64())
    if len(types) == 1 and None not in types:
        return pa.concat_arrays([part for part in parts if len(part)])
    return [vertex_id for part in parts for vertex_id in listed(part)]


def listed(ids: Ids) -> list[Any]:
    """Return the ids as a list."""
    values: list[Any] = ids.to_pylist() if isinstance(ids, pa.Array) else ids
    return values


def encoded(ids: Ids) -> tuple[Ids, Any]:
    """Return the distinct ids, and the index of each id among them."""
    if isinstance(ids, pa.Array):
        array = ids.dictionary_encode()
        return array.dictionary, array.indices.to_numpy(zero_copy_only=False)
    numbers: dict[Any, int] = {}
    codes = [numbers.setdefault(vertex_id, len(numbers)) for vertex_id in ids]
    return list(numbers), np.array(codes, np.int32)


def find_positions(known: Ids, ids: Ids) -> Any:
    """Return the index of each wanted id among the known ids, which are distinct; -1 if it is missing."""
    if isinstance(known, pa.Array) and isinstance(ids, pa.Array) and known.type == ids.type:
        indexes = pc.index_in(ids, value_set=known)
        return pc.fill_null(indexes, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    index = {vertex_id: number for number, vertex_id in enumerate(listed(known))}
    return np.array([index.get(vertex_id, -1) for vertex_id in listed(ids)], np.int64)


def taken(ids: Ids, positions: Any) -> Ids:
    """Return the ids at these indices."""
    if isinstance(ids, pa.Array):
        return ids.take(pa.array(positions))
    return [ids[position] for position in positions]


def assign_owners(ids: Ids, partitions: int) -> Any:
    """Return the partition of each id."""
    if isinstance(ids, pa.Array) and pa.types.is_integer(ids.type):
        return assign_integer_owners(ids.to_numpy(zero_copy_only=False), partitions)
    owners = Owners(partitions)
    return np.array([owners[vertex_id] for vertex_id in listed(ids)], np.uint16)


def radix_argsort(numbers: Any) -> Any:
    """Return a stable sort order of numbers from 0 to 2**32 - 1, by radix sort, which numpy uses for 16 bits."""
    order = np.argsort((numbers & 0xFFFF).astype(np.uint16), kind="stable")
    if len(numbers) and int(numbers.max()) > 0xFFFF:
        high = (numbers >> 16).astype(np.uint16)[order]
        order = order[np.argsort(high, kind="stable")]
    return order


class GraphArrays:
    """See the module docstring.

    Attributes:
        ids: the ids of the vertices: an Arrow array, or a list.
        vertex_values: an array of numbers, a list of anything else, or None if the graph has no vertices of its own.
        degrees: how many edges the value of each vertex is sent along.
        in_degrees: how many values each vertex receives if all are sent.
        number_of_vertices: the number of all partitions' vertices.
        number_of_edges: the number of all partitions' edges in the kernel's direction; with all directions each edge
            counts twice.
        sums: the sums over all partitions, by name.
        superstep: the number of the superstep, from 1.
    """

    def __init__(self, subtask: int, partitions: int) -> None:
        self.subtask = subtask
        self.partitions = partitions
        self.ids: Ids = []
        self.vertex_values: Any = None
        self.number_of_vertices = 0
        self.number_of_edges = 0
        self.superstep = 0
        self.sums: dict[str, float] = {}
        self._added: dict[str, float] = {}
        self._vertices: list[tuple[Ids, Any]] = []
        self._has_vertices = False
        self._edges: list[tuple[Ids, Ids, Any]] = []

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, name: str, number: float) -> None:
        """Add to a sum over all partitions."""
        self._added[name] = self._added.get(name, 0) + number

    def take_added(self) -> dict[str, float]:
        """Return the numbers added since the last call."""
        added, self._added = self._added, {}
        return added

    # --- loading -----------------------------------------------------------------------------------------------------

    def expect_vertices(self) -> None:
        """Expect an input of vertices; otherwise the edges determine the vertices."""
        self._has_vertices = True

    def load_vertices(self, batch: Batch) -> None:
        """Load records (id, value)."""
        ids, values = _columns(batch, 2)[:2]
        self._vertices.append((ids, values))

    def load_edges(self, batch: Batch, end: int) -> None:
        """Load records (source, target, value) that carry values from the source (end 0) or from the target (1)."""
        source, target, values = _columns(batch, 3)
        self._edges.append((target, source, values) if end else (source, target, values))

    def addresses(self) -> list[Any]:
        """Return, by partition, the vertex ids that the loaded edges lead to, and the number of edges to each."""
        ends = joined([columns[0] for columns in self._edges])
        targets = joined([columns[1] for columns in self._edges])
        self.edge_values = _together([columns[2] for columns in self._edges])
        self._edges = []
        different, codes = encoded(targets)
        owners = assign_owners(different, self.partitions)
        order = radix_argsort(owners)
        slot_of = np.empty(len(order), np.uint32)
        slot_of[order] = np.arange(len(order), dtype=np.uint32)
        slots = slot_of[codes]
        by_slot = radix_argsort(slots)
        self._ends, self._end_codes = encoded(ends)
        self._end_codes = self._end_codes[by_slot]
        self.edge_values = _taken(self.edge_values, by_slot)
        counts = np.bincount(slots, minlength=len(order)).astype(np.int64)
        self._counts = counts
        bounds = np.searchsorted(owners[order], np.arange(self.partitions + 1))
        self._bounds = bounds
        ordered = taken(different, order)
        return [
            (ordered[bounds[owner] : bounds[owner + 1]], counts[bounds[owner] : bounds[owner + 1]])
            for owner in range(self.partitions)
        ]

    def settle(self, addressed: Sequence[Any]) -> None:
        """Number the vertices, now that the addresses from all partitions have arrived."""
        if self._has_vertices:
            self._number_given()
        else:
            self.ids = encoded(joined([self._ends, *(ids for ids, _ in addressed)]))[0]
        size = len(self)
        place_of_end = find_positions(self.ids, self._ends)
        self.edge_sources = place_of_end[self._end_codes]
        self._drop_edges_from_nowhere()
        self._places = [find_positions(self.ids, ids) for ids, _ in addressed]
        self.degrees = np.bincount(self.edge_sources, minlength=size)
        self.in_degrees = np.zeros(size, np.int64)
        for positions, (_, counts) in zip(self._places, addressed, strict=True):
            present = positions >= 0
            self.in_degrees[positions[present]] += counts[present]
        self._counts_of_all = [counts for _, counts in addressed]
        self._all_there = [bool((part >= 0).all()) for part in self._places]
        self._starts = np.concatenate([[0], np.cumsum(self._counts)])[:-1]
        del self._ends, self._end_codes

    def initialize(self, value_of: Callable[[Any], Any]) -> None:
        """Compute the values of the vertices from their ids."""
        self.vertex_values = _to_number_array([value_of(vertex_id) for vertex_id in listed(self.ids)])

    def _number_given(self) -> None:
        ids = joined([columns[0] for columns in self._vertices])
        values = _together([columns[1] for columns in self._vertices])
        self._vertices = []
        self.ids, codes = encoded(ids)
        if values is not None:
            last = np.zeros(len(self.ids), np.int64)
            last[codes] = np.arange(len(codes))  # the last of several vertices with the same id counts
            values = _taken(values, last)
        self.vertex_values = values

    def _drop_edges_from_nowhere(self) -> None:
        """Drop edges whose first end is missing from the graph: they carry nothing."""
        present = self.edge_sources >= 0
        if present.all():
            return
        slots = np.repeat(np.arange(len(self._counts)), self._counts)[present]
        self._counts = np.bincount(slots, minlength=len(self._counts)).astype(np.int64)
        self.edge_sources = self.edge_sources[present]
        self.edge_values = _taken(self.edge_values, np.flatnonzero(present))

    # --- values along edges ------------------------------------------------------------------------------------------

    def scattered(self, values: Any, active: Any, along: Any, combine: Combine) -> list[Any]:
        """Return each partition's payload, or None: values, and their slots (None for all).

        With `Combine.NONE`, the number of values for each slot takes the place of the slots.
        """
        sources = self.edge_sources
        if not len(sources) or (active is not None and not active.any()):
            return [None] * self.partitions
        is_all = active is None or bool(active.all())
        counts, starts, edges = self._counts, self._starts, None
        if not is_all:
            sends = active[sources]
            edges = np.flatnonzero(sends)
            slots = np.repeat(np.arange(len(counts)), counts)[edges]
            counts = np.bincount(slots, minlength=len(counts))
            sources = sources[edges]
        per_edge = along(values[sources], self.edge_values if edges is None else _taken(self.edge_values, edges))
        used = np.flatnonzero(counts)
        if combine is Combine.NONE:
            ends = np.concatenate([[0], np.cumsum(counts)])
            return list(self._uncombined(per_edge, counts, ends))
        if edges is not None:
            starts = np.concatenate([[0], np.cumsum(counts)])[:-1]
        reduced = UFUNCS[combine].reduceat(per_edge, starts[used])
        return list(self._combined(reduced, used, len(used) == len(counts)))

    def _combined(self, reduced: Any, used: Any, is_dense: bool) -> Iterator[Any]:
        cuts = self._bounds if is_dense else np.searchsorted(used, self._bounds)
        for owner in range(self.partitions):
            part = reduced[cuts[owner] : cuts[owner + 1]]
            slots = None if is_dense else used[cuts[owner] : cuts[owner + 1]] - self._bounds[owner]
            yield (part, slots) if len(part) else None

    def _uncombined(self, per_edge: Any, counts: Any, ends: Any) -> Iterator[Any]:
        for owner in range(self.partitions):
            begin, end = self._bounds[owner], self._bounds[owner + 1]
            part = per_edge[ends[begin] : ends[end]]
            yield (part, counts[begin:end]) if len(part) else None

    def gathered(self, payloads: Sequence[Any], combine: Combine, kind: Any) -> Inbox:
        """Collect the values from all partitions; `kind` is the type of values if none arrived."""
        for payload in payloads:
            if payload is not None:
                kind = payload[0].dtype
        if combine is Combine.NONE:
            return self._all_gathered(payloads, kind)
        values = np.full(len(self), None if kind.kind == "O" else get_identity(combine, kind), kind)
        has = np.zeros(len(self), bool)
        combined = UFUNCS[combine]
        for positions, is_all_there, payload in zip(self._places, self._all_there, payloads, strict=True):
            if payload is None:
                continue
            part, slots = payload
            at = positions if slots is None else positions[slots]
            if not is_all_there:
                part, at = part[at >= 0], at[at >= 0]
            if kind.kind == "O":  # objects have no identity value
                both = has[at]
                values[at[~both]] = part[~both]
                part, at = part[both], at[both]
            values[at] = combined(values[at], part)  # no index occurs twice
            has[positions if slots is None else positions[slots]] = True
        return Inbox(values, has)

    def _all_gathered(self, payloads: Sequence[Any], kind: Any) -> Inbox:
        positions, parts = [np.zeros(0, np.int64)], [np.zeros(0, kind)]
        for mine, payload in zip(self._places, payloads, strict=True):
            if payload is not None:
                part, counts = payload
                at = np.repeat(mine, counts)
                positions.append(at[at >= 0])
                parts.append(part[at >= 0])
        at = np.concatenate(positions)
        counts = np.bincount(at, minlength=len(self))
        return Inbox(np.concatenate(parts)[radix_argsort(at)], counts > 0, np.concatenate([[0], np.cumsum(counts)]))


def _columns(batch: Batch, width: int) -> tuple[Any, ...]:
    """Return the columns of a batch, ids first. Records may lack the last column, which is then None."""
    ids = width - 1
    if isinstance(batch, ColumnBatch):
        columns = batch.columns.columns
        values = _numbers(columns[ids]) if len(columns) > ids else None
        return (*(ids_of_column(column) for column in columns[:ids]), values)
    lists = list(zip(*batch.values, strict=True))
    values = _to_number_array(lists[ids]) if len(lists) > ids else None
    return (*(to_id_column(column) for column in lists[:ids]), values)


def _numbers(column: Any) -> Any:
    if column.null_count == len(column):
        return None
    if column.null_count or not (np.issubdtype(kind := column.type.to_pandas_dtype(), np.number) or kind is np.bool_):
        return _to_number_array(column.to_pylist())
    return column.to_numpy(zero_copy_only=False)


def _to_number_array(values: Sequence[Any]) -> Any:
    kinds = set(map(type, values))
    if kinds == {type(None)}:
        return None
    if kinds <= {int, float} or kinds == {bool}:
        try:
            return np.array(values, np.float64 if float in kinds else None)
        except OverflowError:
            return list(values)
    return list(values)


def _together(parts: Sequence[Any]) -> Any:
    """Return several arrays or lists as one; None if all are None."""
    if all(part is None for part in parts):
        return None
    if all(isinstance(part, np.ndarray) for part in parts):
        joined_parts = np.concatenate(parts)
        return joined_parts if joined_parts.dtype != object else joined_parts.tolist()
    return [value for part in parts for value in (part.tolist() if isinstance(part, np.ndarray) else part)]


def _taken(values: Any, positions: Any) -> Any:
    if values is None:
        return None
    return values[positions] if isinstance(values, np.ndarray) else [values[position] for position in positions]
