"""Similarity of vertices by shared neighbours: the Jaccard index and the Adamic-Adar index.

`pairs` finds pairs of vertices that share neighbours. Each vertex notifies its neighbours of each other: of two
neighbours, the one with the smaller id receives the other. Everything that a vertex receives is collected there. A
vertex of high degree has many neighbours to notify, so its list is cut into groups for several subtasks.

`JaccardIndex` scores the fraction of two vertices' neighbours that they share. `AdamicAdar` sums over shared
neighbours, which count more the fewer neighbours they have.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple, Self

from penstock.base.errors import WrongValueError
from penstock.datastream.data_stream import DataStream
from penstock.datastream.functions import BroadcastProcessFunction
from penstock.gelly.asm import Partial, VertexDegree, partials, with_degrees
from penstock.gelly.base import FIRST, GraphAlgorithm, flag, number, of_groups, whole
from penstock.state.states import MapStateDescriptor

GROUP_SIZE: Final = 64


class Learnt(NamedTuple):
    """The information that a vertex receives from a neighbour.

    Attributes:
        id: the vertex.
        degree: the number of neighbours of the vertex.
        shared_degree: the number of neighbours of the neighbour.
        others: the neighbour's neighbours with larger ids than the vertex, in ascending order.
        degrees: the degrees of the others.
    """

    id: Any
    degree: int
    shared_degree: int
    others: tuple[Any, ...]
    degrees: tuple[int, ...]


def pairs(
    edges: DataStream, group_size: int, make: Callable[[Any, int, list[Learnt]], Iterable[Any]], name: str
) -> DataStream:
    """Return the results of `make(id, degree, learnt)` for each vertex of an undirected graph that received something.

    `learnt` is ordered by the degree of the neighbour that sent it.
    """
    groups = of_groups(with_degrees(edges, is_directed=False), FIRST, partial(_groups, group_size))
    learnt = groups.name("Groups Of Neighbours").rebalance().flat_map(_tell).name("Neighbours Of Neighbours")
    return of_groups(learnt, FIRST, partial(_results, make)).name(name)


def _groups(group_size: int, _: Any, key: Any, neighbours: Iterable[Any]) -> Iterator[Any]:
    """Yield for each group the number of neighbours, the ids and degrees from the group on, and the group's length."""
    pairs = sorted((n.neighbour, n.degree) for n in neighbours)
    ids = tuple(vertex_id for vertex_id, _ in pairs)
    degrees = tuple(degree for _, degree in pairs)
    for start in range(0, len(pairs) - 1, group_size):
        yield len(pairs), ids[start:], degrees[start:], group_size


def _tell(group: tuple[int, tuple[Any, ...], tuple[int, ...], int]) -> Iterator[Learnt]:
    shared_degree, ids, degrees, group_size = group
    for index in range(min(group_size, len(ids) - 1)):
        yield Learnt(ids[index], degrees[index], shared_degree, ids[index + 1 :], degrees[index + 1 :])


def _results(make: Callable[[Any, int, list[Learnt]], Iterable[Any]], _: Any, key: Any, learnt: Iterable[Any]) -> Any:
    records = sorted(learnt, key=_shared_degree)
    return make(key, records[0].degree, records)


def _shared_degree(learnt: Learnt) -> int:
    return learnt.shared_degree


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

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.library import JaccardIndex
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([(1, 2), (2, 1), (3, 2), (2, 3)], env)
        >>> (similar,) = graph.run(JaccardIndex()).collect()
        >>> similar
        JaccardScore(vertex_id_0=1, vertex_id_1=3, shared_neighbor_count=1, distinct_neighbor_count=1)
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
        make = partial(_jaccard_scores, self._minimum, self._maximum, self._mirrors)
        return pairs(graph.get_edges(), self._group_size, make, "Jaccard Index")

    def _fraction(self, name: str, numerator: int, denominator: int) -> tuple[int, int]:
        over = whole(self, f"{name}: the numerator", numerator, 0)
        under = whole(self, f"{name}: the denominator", denominator, 1)
        if over > under:
            raise WrongValueError(f"JaccardIndex: {name} takes a fraction of at most 1, not {over}/{under}")
        return over, under


def _jaccard_scores(
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


_AVERAGE: Final = MapStateDescriptor("average score")


class AdamicAdarScore(NamedTuple):
    """Two vertices that share neighbours.

    Attributes:
        vertex_id_0: the smaller id.
        vertex_id_1: the larger id.
        adamic_adar_score: the sum of 1 / ln(number of neighbours) over shared neighbours.
    """

    vertex_id_0: Any
    vertex_id_1: Any
    adamic_adar_score: float

    def get_vertex_id_0(self) -> Any:
        """Return the smaller id."""
        return self.vertex_id_0

    def get_vertex_id_1(self) -> Any:
        """Return the larger id."""
        return self.vertex_id_1

    def get_adamic_adar_score(self) -> float:
        """Return the sum of 1 / ln(number of neighbours) over shared neighbours."""
        return self.adamic_adar_score


class AdamicAdar(GraphAlgorithm[DataStream]):
    """Scores the shared neighbours of each pair of vertices that share one.

    The graph is undirected and simple, with each edge in both directions.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.library import AdamicAdar
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([(1, 2), (2, 1), (3, 2), (2, 3)], env)
        >>> (similar,) = graph.run(AdamicAdar()).collect()
        >>> similar[:2], round(similar[2], 3)
        ((1, 3), 1.443)
    """

    _minimum_score = 0.0
    _minimum_ratio = 0.0
    _mirrors = False

    def set_minimum_score(self, score: float) -> Self:
        """Leave out pairs with a score below `score`, which is 0 or more."""
        self._minimum_score = number(self, "set_minimum_score: the score", score, at_least=0)
        return self

    def set_minimum_ratio(self, ratio: float) -> Self:
        """Leave out pairs with a score below `ratio` (0 or more) times a shared neighbour's average contribution."""
        self._minimum_ratio = number(self, "set_minimum_ratio: the ratio", ratio, at_least=0)
        return self

    def set_mirror_results(self, mirror_results: bool) -> Self:
        """Set whether each pair is emitted a second time with its ids swapped (default: False)."""
        self._mirrors = flag(self, "set_mirror_results", mirror_results)
        return self

    def run(self, graph: Any) -> DataStream:
        """Return a stream of the pairs."""
        scores = pairs(graph.get_edges(), GROUP_SIZE, partial(_adamic_adar_scores, self._minimum_score), "Adamic-Adar")
        if self._minimum_ratio > 0:
            sums = partials(VertexDegree().run(graph), _PairSums, "Sums Of Scores")
            # A loop's superstep is a batch in every execution mode, so the broadcast side arrives first.
            step = scores.iterate(1).name("Adamic-Adar Ratio")
            above = step.connect(sums.broadcast(_AVERAGE)).process(_AboveRatio(self._minimum_ratio))
            scores = step.close_with(above)
        return scores.flat_map(_mirrored).name("Mirror Results") if self._mirrors else scores


def _adamic_adar_scores(minimum: float, key: Any, degree: int, learnt: list[Learnt]) -> Iterator[AdamicAdarScore]:
    scores: defaultdict[Any, float] = defaultdict(float)
    for record in learnt:
        weight = 1 / math.log(record.shared_degree)
        for other in record.others:
            scores[other] += weight
    for other, score in scores.items():
        if score >= minimum:
            yield AdamicAdarScore(key, other, score)


def _mirrored(pair: AdamicAdarScore) -> list[AdamicAdarScore]:
    return [pair, AdamicAdarScore(pair.vertex_id_1, pair.vertex_id_0, pair.adamic_adar_score)]


class _PairSums(Partial):
    """Counts the pairs of neighbours of vertices by degree, as (degree, pairs)."""

    def __init__(self) -> None:
        self._pairs: defaultdict[int, int] = defaultdict(int)

    def add(self, records: Sequence[Any]) -> None:
        for _, degree in records:
            self._pairs[degree] += degree * (degree - 1) // 2

    def take(self) -> list[Any]:
        records = [(degree, count) for degree, count in self._pairs.items() if count]
        self._pairs.clear()
        return records


class _AboveRatio(BroadcastProcessFunction):
    """Selects the pairs with at least this ratio of the average contribution."""

    def __init__(self, ratio: float) -> None:
        self._ratio = ratio
        self._limit: float | None = None

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterable[Any] | None:
        degree, count = value
        state = ctx.get_broadcast_state(_AVERAGE)
        state.put(degree, (state.get(degree) or 0) + count)
        return None

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any] | None:
        if self._limit is None:
            by_degree = sorted(ctx.get_broadcast_state(_AVERAGE).items())
            score = math.fsum(count / math.log(degree) for degree, count in by_degree)
            self._limit = self._ratio * score / sum(count for _, count in by_degree)
        return [value] if value.adamic_adar_score >= self._limit else None
