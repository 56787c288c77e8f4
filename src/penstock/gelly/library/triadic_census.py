"""The triadic census: the number of vertex triples by how they are connected.

Triples with three edges are triangles, which are listed. Triples with two edges are pairs of a vertex's neighbours,
minus the triangles. Triples with one edge are pairs of an edge and another vertex, minus the triples with two or three.
The rest have none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from penstock.gelly.asm import FORWARD, MUTUAL, REVERSE, TURNED, Counts, Partial, VertexDegree, VertexDegrees, partials
from penstock.gelly.base import collected
from penstock.gelly.library.clustering import triangles
from penstock.gelly.library.metrics import Analytic

#: The kinds of triples of an undirected graph, by the numbers of present and missing edges.
UNDIRECTED_KINDS: Final = ("03", "12", "21", "30")
#: The kinds of triples of a directed graph: pairs with an edge both ways, one way, none; and their arrangement.
DIRECTED_KINDS: Final = (
    *("003", "012", "102", "021D", "021U", "021C", "111D", "111U"),
    *("030T", "030C", "201", "120D", "120U", "120C", "210", "300"),
)


class UndirectedCensus(NamedTuple):
    """The number of vertex triples of each kind.

    Attributes:
        counts: by the number of edges, from 0 to 3: 03, 12, 21, 30.
    """

    counts: tuple[int, ...]

    def get_counts(self) -> tuple[int, ...]:
        """Return the counts by the number of edges, from 0 to 3."""
        return self.counts

    def get_count_03(self) -> int:
        """Return the number of triples without edges."""
        return self.counts[0]

    def get_count_12(self) -> int:
        """Return the number of triples with one edge."""
        return self.counts[1]

    def get_count_21(self) -> int:
        """Return the number of triples with two edges."""
        return self.counts[2]

    def get_count_30(self) -> int:
        """Return the number of triples with three edges."""
        return self.counts[3]


class DirectedCensus(NamedTuple):
    """The number of vertex triples of each kind.

    Attributes:
        counts: 003, 012, 102, 021D, 021U, 021C, 111D, 111U, 030T, 030C, 201, 120D, 120U, 120C, 210, 300.
    """

    counts: tuple[int, ...]

    def get_counts(self) -> tuple[int, ...]:
        """Return the counts.

        The kinds are 003, 012, 102, 021D, 021U, 021C, 111D, 111U, 030T, 030C, 201, 120D, 120U, 120C, 210, 300.
        """
        return self.counts

    def get_count(self, kind: str) -> int:
        """Return the number of triples of a kind, such as "021D".

        Raises:
            ValueError: if the kind does not exist.
        """
        return self.counts[DIRECTED_KINDS.index(kind.upper())]


class UndirectedTriadicCensus(Analytic[UndirectedCensus]):
    """Counts the vertex triples by the number of edges among them. Vertices without edges do not count."""

    def compute(self, graph: Any, job_name: str) -> UndirectedCensus:
        (vertices, ends, triplets), masks = _figures(graph, False, _undirected_figures, job_name)
        three_edges = sum(masks.values())
        two_edges = triplets - 3 * three_edges
        one_edge = ends // 2 * (vertices - 2) - 2 * two_edges - 3 * three_edges
        no_edges = _triples(vertices) - one_edge - two_edges - three_edges
        return UndirectedCensus((no_edges, one_edge, two_edges, three_edges))


class DirectedTriadicCensus(Analytic[DirectedCensus]):
    """Counts the vertex triples of a directed graph by the edges among them. Vertices without edges do not count.

    The graph must not have self-loops or duplicate edges.
    """

    def compute(self, graph: Any, job_name: str) -> DirectedCensus:
        (vertices, one_way, both_ways, *triplets), masks = _figures(graph, True, _directed_figures, job_name)
        counts = dict.fromkeys(DIRECTED_KINDS, 0)
        counts.update(zip(TRIPLETS, triplets, strict=True))
        for mask, count in masks.items():
            counts[_kind(mask)] += count
            for corner in _corners(mask):
                counts[TRIPLET_OF_CORNER[corner]] -= count
        # A kind begins with the numbers of pairs with an edge both ways, and with one edge.
        larger = [(int(kind[0]), int(kind[1]), counts[kind]) for kind in DIRECTED_KINDS[3:]]
        counts["012"] = one_way // 2 * (vertices - 2) - sum(pairs * count for _, pairs, count in larger)
        counts["102"] = both_ways // 2 * (vertices - 2) - sum(pairs * count for pairs, _, count in larger)
        counts["003"] = _triples(vertices) - sum(counts.values())
        return DirectedCensus(tuple(counts.values()))


def _triples(vertices: int) -> int:
    return vertices * (vertices - 1) * (vertices - 2) // 6


# --- what a job counts -----------------------------------------------------------------------------------------------


def _figures(
    graph: Any, is_directed: bool, figures: Callable[[Any], tuple[int, ...]], job_name: str
) -> tuple[list[int], Counter[int]]:
    """Return the sums of figures over all vertices, and the number of triangles for each bit mask."""
    degrees = (VertexDegrees() if is_directed else VertexDegree()).run(graph)
    sums = partials(degrees, partial(_Sums, figures), "Triplets")
    masks = partials(triangles(graph.get_edges(), is_directed), partial(Counts, _masks), "Triangles By Kind")
    records = collected(sums.map(_labelled_sums).union(masks.map(_labelled_masks)), job_name)
    totals = [sum(column) for column in zip(*(record for is_mask, record in records if not is_mask), strict=True)]
    counts: Counter[int] = Counter()
    for is_mask, record in records:
        if is_mask:
            counts[record[0]] += record[1]
    return totals or list(figures(None)), counts


def _labelled_sums(record: Any) -> tuple[bool, Any]:
    return False, record


def _labelled_masks(record: Any) -> tuple[bool, Any]:
    return True, record


def _masks(records: Sequence[Any]) -> list[int]:
    return [mask for *_, mask in records]


class _Sums(Partial):
    """Sums figures of vertices with degrees."""

    def __init__(self, figures: Callable[[Any], tuple[int, ...]]) -> None:
        self._figures = figures
        self._sums: list[int] = []

    def add(self, records: Sequence[Any]) -> None:
        rows = [self._figures(degree) for _, degree in records]
        if self._sums:
            rows.append(tuple(self._sums))
        self._sums = [sum(column) for column in zip(*rows, strict=True)]

    def take(self) -> list[Any]:
        records = [tuple(self._sums)] if self._sums else []
        self._sums = []
        return records


def _undirected_figures(degree: int | None) -> tuple[int, ...]:
    """Return the figures of a vertex: vertices, edge ends, pairs of neighbours."""
    return (0, 0, 0) if degree is None else (1, degree, degree * (degree - 1) // 2)


def _directed_figures(degrees: Any) -> tuple[int, ...]:
    """Return the figures of a vertex: vertices, ends of edges one way and both ways, and pairs of neighbours by the
    directions of their edges, as in TRIPLETS.
    """
    if degrees is None:
        return (0,) * 9
    degree, out_degree, in_degree = degrees
    out, into, both = degree - in_degree, degree - out_degree, out_degree + in_degree - degree
    pairs = (out * (out - 1) // 2, into * (into - 1) // 2, out * into, into * both, out * both, both * (both - 1) // 2)
    return (1, out + into, both, *pairs)


# --- kinds of triples ------------------------------------------------------------------------------------------------

#: The kinds with two edges, by the directions of these from their common vertex.
TRIPLET_OF_CORNER: Final = {
    (FORWARD, FORWARD): "021D",
    (REVERSE, REVERSE): "021U",
    (FORWARD, REVERSE): "021C",
    (REVERSE, MUTUAL): "111D",
    (FORWARD, MUTUAL): "111U",
    (MUTUAL, MUTUAL): "201",
}
TRIPLETS: Final = tuple(TRIPLET_OF_CORNER.values())


def _corners(mask: int) -> list[tuple[int, int]]:
    """Return the directions of the two edges at each vertex of a triangle."""
    first, second, third = mask >> 4 & 3, mask >> 2 & 3, mask & 3
    pairs = [(first, second), (TURNED[first], third), (TURNED[second], TURNED[third])]
    return [(min(pair), max(pair)) for pair in pairs]


def _kind(mask: int) -> str:
    """Return the kind of a triangle."""
    edges = (mask >> 4 & 3, mask >> 2 & 3, mask & 3)
    corners = _corners(mask)
    match edges.count(MUTUAL):
        case 0:
            return "030C" if corners.count((FORWARD, REVERSE)) == 3 else "030T"
        case 1:
            # The corner without an edge both ways is opposite to that edge.
            (corner,) = [corner for corner in corners if MUTUAL not in corner]
            return {(FORWARD, FORWARD): "120D", (REVERSE, REVERSE): "120U"}.get(corner, "120C")
        case 2:
            return "210"
    return "300"
