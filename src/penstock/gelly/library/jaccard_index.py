"""The Jaccard index: the fraction of two vertices' neighbours that they share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, Self

from penstock.base.errors import WrongValueError
from penstock.datastream.data_stream import DataStream
from penstock.gelly.asm.checks import flag, whole
from penstock.gelly.base.algorithm import GraphAlgorithm
from penstock.gelly.library.shared_neighbours import GROUP_SIZE, Learnt, pairs


class JaccardScore(NamedTuple):
    """Two vertices that share neighbours.

    Attributes:
        vertex_id_0: the smaller id.
        vertex_id_1: the larger id.
        shared_neighbor_count: the number of common neighbours.
        distinct_neighbor_count: the number of neighbours of one or both.
    """

    vertex_id_0: Any
    vertex_id_1: Any
    shared_neighbor_count: int
    distinct_neighbor_count: int

    def get_vertex_id_0(self) -> Any:
        """Return the smaller id."""
        return self.vertex_id_0

    def get_vertex_id_1(self) -> Any:
        """Return the larger id."""
        return self.vertex_id_1

    def get_shared_neighbor_count(self) -> int:
        """Return the number of common neighbours."""
        return self.shared_neighbor_count

    def get_distinct_neighbor_count(self) -> int:
        """Return the number of neighbours of one or both."""
        return self.distinct_neighbor_count

    def get_jaccard_index_score(self) -> float:
        """Return shared neighbours divided by distinct ones, from 0 to 1."""
        return self.shared_neighbor_count / self.distinct_neighbor_count


class JaccardIndex(GraphAlgorithm[DataStream]):
    """Scores how similar the neighbours of two vertices are, for each two vertices that share one.

    The graph is undirected and simple, with each edge in both directions.
    """

    _minimum = (0, 1)
    _maximum = (1, 1)
    _mirrors = False
    _group_size = GROUP_SIZE

    def set_minimum_score(self, numerator: int, denominator: int) -> Self:
        """Leave out pairs with a score below this fraction, from 0 to 1."""
        self._minimum = self._fraction("set_minimum_score", numerator, denominator)
        return self

    def set_maximum_score(self, numerator: int, denominator: int) -> Self:
        """Leave out pairs with a score above this fraction, from 0 to 1."""
        self._maximum = self._fraction("set_maximum_score", numerator, denominator)
        return self

    def set_mirror_results(self, mirror_results: bool) -> Self:
        """Set whether each pair is emitted a second time with its ids swapped (default: False)."""
        self._mirrors = flag(self, "set_mirror_results", mirror_results)
        return self

    def set_group_size(self, group_size: int) -> Self:
        """Set how many neighbours of a vertex one subtask pairs (default: 64). The results are the same."""
        self._group_size = whole(self, "group_size", group_size, 1)
        return self

    def run(self, graph: Any) -> DataStream:
        """Return a stream of the pairs."""
        make = partial(_scores, self._minimum, self._maximum, self._mirrors)
        return pairs(graph.get_edges(), self._group_size, make, "Jaccard Index")

    def _fraction(self, name: str, numerator: int, denominator: int) -> tuple[int, int]:
        over = whole(self, f"{name}: the numerator", numerator, 0)
        under = whole(self, f"{name}: the denominator", denominator, 1)
        if over > under:
            raise WrongValueError(f"JaccardIndex: {name} takes a fraction of at most 1, not {over}/{under}")
        return over, under


def _scores(
    minimum: tuple[int, int], maximum: tuple[int, int], mirrors: bool, key: Any, degree: int, learnt: list[Learnt]
) -> Iterator[JaccardScore]:
    shared = Counter(chain.from_iterable(record.others for record in learnt))
    degrees = dict(
        zip(
            chain.from_iterable(record.others for record in learnt),
            chain.from_iterable(record.degrees for record in learnt),
            strict=True,
        )
    )
    for other, count in shared.items():
        distinct = degree + degrees[other] - count
        if count * minimum[1] >= distinct * minimum[0] and count * maximum[1] <= distinct * maximum[0]:
            yield JaccardScore(key, other, count, distinct)
            if mirrors:
                yield JaccardScore(other, key, count, distinct)
