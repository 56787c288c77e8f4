"""The Adamic-Adar index: shared neighbours, which count more the fewer neighbours they have."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Self

from penstock.datastream.data_stream import DataStream
from penstock.datastream.functions import BroadcastProcessFunction
from penstock.gelly.asm.checks import flag, number
from penstock.gelly.asm.partials import Partial, partials
from penstock.gelly.asm.vertex_degrees import VertexDegree
from penstock.gelly.base.algorithm import GraphAlgorithm
from penstock.gelly.library.shared_neighbours import GROUP_SIZE, Learnt, pairs
from penstock.state.descriptors import MapStateDescriptor

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
        scores = pairs(graph.get_edges(), GROUP_SIZE, partial(_scores, self._minimum_score), "Adamic-Adar")
        if self._minimum_ratio > 0:
            sums = partials(VertexDegree().run(graph), _PairSums, "Sums Of Scores")
            # A loop's superstep is a batch in every execution mode, so the broadcast side arrives first.
            step = scores.iterate(1).name("Adamic-Adar Ratio")
            above = step.connect(sums.broadcast(_AVERAGE)).process(_AboveRatio(self._minimum_ratio))
            scores = step.close_with(above)
        return scores.flat_map(_mirrored).name("Mirror Results") if self._mirrors else scores


def _scores(minimum: float, key: Any, degree: int, learnt: list[Learnt]) -> Iterator[AdamicAdarScore]:
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
