"""Programs with loops, in a module that Spark's workers can import, and the same in plain Python."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path
from typing import Any

from penstock.base.accumulators import ConvergenceCriterion, DoubleSumAggregator, LongSumAggregator
from penstock.common import Types
from penstock.datastream.functions import (
    BroadcastProcessFunction,
    FlatMapFunction,
    KeyedCoProcessFunction,
    MapFunction,
)
from penstock.datastream.join_functions import FlatJoinFunction, JoinFunction
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor

DAMPING = 0.85
Graph = dict[int, list[int]]


def first(pair: Any) -> Any:
    return pair[0]


def add_second(left: Any, right: Any) -> Any:
    return left[0], left[1] + right[1]


def least_second(left: Any, right: Any) -> Any:
    return left if left[1] <= right[1] else right


# --- page rank: a bulk iteration --------------------------------------------------------------------------------------


class Spread(FlatJoinFunction):
    """A page's rank goes to the pages that it links to, in equal parts."""

    def join(self, rank: Any, links: Any) -> Any:
        yield rank[0], 0.0
        for target in links[1]:
            yield target, rank[1] / len(links[1])


class Damp(MapFunction):
    def __init__(self, pages: int) -> None:
        self.pages = pages

    def map(self, value: Any) -> Any:
        return value[0], (1 - DAMPING) / self.pages + DAMPING * value[1]


def page_rank(env: Any, graph: Graph, supersteps: int) -> Any:
    ranks = env.from_collection([(page, 1 / len(graph)) for page in graph]).iterate(supersteps)
    links = env.from_collection(sorted(graph.items()))
    shares = ranks.join(links).where(first).equal_to(first).apply(Spread())
    return ranks.close_with(shares.key_by(first).reduce(add_second).map(Damp(len(graph))))


def plain_page_rank(graph: Graph, supersteps: int) -> dict[int, float]:
    ranks = {page: 1 / len(graph) for page in graph}
    for _ in range(supersteps):
        sums: dict[int, float] = defaultdict(float)
        for page, targets in graph.items():
            for target in targets:
                sums[target] += ranks[page] / len(targets)
        ranks = {page: (1 - DAMPING) / len(graph) + DAMPING * sums[page] for page in graph}
    return ranks


# --- k-means: centroids are broadcast, and an aggregator says how far they have moved ---------------------------------

CENTROIDS = MapStateDescriptor("centroids", Types.INT(), Types.PICKLED_BYTE_ARRAY())
Point = tuple[float, float]


def nearest(point: Any, centroids: Any) -> int:
    _, number = min((math.dist(point, at), number) for number, at in centroids.items())
    return int(number)


class Assign(BroadcastProcessFunction):
    """(number of the nearest centroid, x, y, 1)"""

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield nearest(value, dict(ctx.get_broadcast_state(CENTROIDS).items())), *value, 1

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        ctx.get_broadcast_state(CENTROIDS).put(value[0], value[1:])


class Move(JoinFunction):
    """The new centroid; the way that it has come is added up."""

    def open(self, runtime_context: Any) -> None:
        self.moved = runtime_context.get_iteration_aggregator("moved")

    def join(self, sums: Any, before: Any) -> Any:
        number, x, y, count = sums
        self.moved.aggregate(math.dist((x / count, y / count), before[1:]))
        return number, x / count, y / count


class Below(ConvergenceCriterion[float]):
    def __init__(self, limit: float) -> None:
        self.limit = limit

    def is_converged(self, iteration: int, value: float) -> bool:
        return value < self.limit


def add_points(left: Any, right: Any) -> Any:
    return left[0], left[1] + right[1], left[2] + right[2], left[3] + right[3]


def k_means(env: Any, points: list[Point], begin: list[Point], limit: float, supersteps: int) -> Any:
    centroids = env.from_collection([(number, *at) for number, at in enumerate(begin)]).iterate(supersteps)
    centroids.register_aggregation_convergence_criterion("moved", DoubleSumAggregator(), Below(limit))
    assigned = env.from_collection(points).rebalance().connect(centroids.broadcast(CENTROIDS)).process(Assign())
    sums = assigned.key_by(first).reduce(add_points)
    return centroids.close_with(sums.join(centroids).where(first).equal_to(first).apply(Move()))


def plain_k_means(points: list[Point], begin: list[Point], limit: float, supersteps: int) -> dict[int, Point]:
    centroids = dict(enumerate(begin))
    for _ in range(supersteps):
        of: dict[int, list[Point]] = defaultdict(list)
        for point in points:
            of[nearest(point, centroids)].append(point)
        new = {n: (sum(x for x, _ in p) / len(p), sum(y for _, y in p) / len(p)) for n, p in of.items()}
        moved = sum(math.dist(at, centroids[n]) for n, at in new.items())
        centroids = new
        if moved < limit:
            break
    return centroids


# --- connected components: a delta iteration, by joins ----------------------------------------------------------------


class ToNeighbour(JoinFunction):
    def join(self, one: Any, edge: Any) -> Any:
        return edge[1], one[1]


class IfLess(FlatJoinFunction):
    def join(self, candidate: Any, held: Any) -> Any:
        if candidate[1] < held[1]:
            yield candidate


def components(env: Any, vertices: list[int], edges: list[tuple[int, int]], supersteps: int = 100) -> Any:
    begin = env.from_collection([(vertex, vertex) for vertex in vertices])
    both = env.from_collection(edges + [(b, a) for a, b in edges])
    loop = begin.iterate_delta(begin, supersteps, first)
    told = loop.workset.join(both).where(first).equal_to(first).apply(ToNeighbour())
    least = told.key_by(first).reduce(least_second)
    delta = least.join(loop.solution_set).where(first).equal_to(first).apply(IfLess())
    return loop.close_with(delta, delta)


def plain_components(vertices: list[int], edges: list[tuple[int, int]]) -> dict[int, int]:
    of = {vertex: vertex for vertex in vertices}

    def root(vertex: int) -> int:
        while of[vertex] != vertex:
            vertex = of[vertex]
        return vertex

    for one, other in edges:
        low, high = sorted((root(one), root(other)))
        of[high] = low
    return {vertex: root(vertex) for vertex in vertices}


# --- shortest paths: a delta iteration, by a function of two inputs ---------------------------------------------------


class Along(JoinFunction):
    def join(self, reached: Any, edge: Any) -> Any:
        return edge[1], reached[1] + edge[2]


class Shorter(KeyedCoProcessFunction):
    """The least distance found for a vertex, when it is less than what the solution set has."""

    def open(self, runtime_context: Any) -> None:
        self.found = runtime_context.get_state(ValueStateDescriptor("found"))
        self.held = runtime_context.get_state(ValueStateDescriptor("held"))

    def process_element1(self, value: Any, ctx: Any) -> Any:
        before = self.found.value()
        self.found.update(value[1] if before is None else min(before, value[1]))
        ctx.timer_service().register_event_time_timer(0)

    def process_element2(self, value: Any, ctx: Any) -> Any:
        self.held.update(value[1])

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        if self.found.value() < self.held.value():
            yield ctx.get_current_key(), self.found.value()


def shortest_paths(env: Any, vertices: list[int], edges: list[tuple[int, int, int]], source: int) -> Any:
    begin = env.from_collection([(vertex, 0 if vertex == source else math.inf) for vertex in vertices])
    loop = begin.iterate_delta(env.from_collection([(source, 0)]), len(vertices), first)
    found = loop.get_workset().join(env.from_collection(edges)).where(first).equal_to(first).apply(Along())
    delta = found.key_by(first).connect(loop.get_solution_set().key_by(first)).process(Shorter())
    return loop.close_with(delta, delta)


def plain_shortest_paths(vertices: list[int], edges: list[tuple[int, int, int]], source: int) -> dict[int, float]:
    distances: dict[int, float] = dict.fromkeys(vertices, math.inf)
    distances[source] = 0
    for _ in vertices:
        for start, end, length in edges:
            distances[end] = min(distances[end], distances[start] + length)
    return distances


# --- parts of smaller programs ----------------------------------------------------------------------------------------


class Marked:
    """A function that leaves a mark for each call, so that computing again is seen."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, value: Any) -> Any:
        with self.path.open("a") as file:
            file.write("x")
        return value

    @property
    def calls(self) -> int:
        return len(self.path.read_text()) if self.path.exists() else 0


class AddUp(MapFunction):
    """Each number plus one; numbers are added up. Fails once, in the superstep told, when it has added some."""

    def __init__(self, mark: Path | None = None, fails_in: int = 0) -> None:
        self.mark, self.fails_in = mark, fails_in

    def open(self, runtime_context: Any) -> None:
        self.superstep = runtime_context.get_superstep_number()
        self.sum = runtime_context.get_iteration_aggregator("sum")
        self.before = runtime_context.get_previous_iteration_aggregate("sum")

    def map(self, value: int) -> int:
        self.sum.aggregate(value)
        if self.mark is not None and self.superstep == self.fails_in and value >= 20 and not self.mark.exists():
            self.mark.touch()
            raise RuntimeError("once")
        return value + 1


class Recorded(ConvergenceCriterion[int]):
    """Writes the aggregates down; never ends the loop."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def is_converged(self, iteration: int, value: int) -> bool:
        with self.path.open("a") as file:
            file.write(f"{iteration}:{value} ")
        return False


def sums(env: Any, numbers: int, supersteps: int, seen: Path, function: AddUp) -> Any:
    loop = env.from_collection(range(numbers)).iterate(supersteps)
    loop.register_aggregation_convergence_criterion("sum", LongSumAggregator(), Recorded(seen))
    return loop.close_with(loop.rebalance().map(function).key_by(int).map(int).rebalance().map(int))


class Tell(FlatMapFunction):
    """What a function of a step is told."""

    def open(self, runtime_context: Any) -> None:
        self.context = runtime_context
        self.aggregator = runtime_context.get_iteration_aggregator("count")

    def flat_map(self, value: Any) -> Any:
        self.aggregator.aggregate(1)
        yield [*value, (self.context.get_superstep_number(), self.context.get_previous_iteration_aggregate("count"))]
