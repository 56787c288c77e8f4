"""A small graph, as Flink's own tests have it, in environments of the local driver."""

from __future__ import annotations

from typing import Any

from tests.datastream.environments import local_environment

from penstock.datastream import StreamExecutionEnvironment
from penstock.gelly import Edge, Graph, Vertex

VERTICES = [Vertex(1, 1), Vertex(2, 2), Vertex(3, 3), Vertex(4, 4), Vertex(5, 5)]
EDGES = [
    Edge(1, 2, 12),
    Edge(1, 3, 13),
    Edge(2, 3, 23),
    Edge(3, 4, 34),
    Edge(3, 5, 35),
    Edge(4, 5, 45),
    Edge(5, 1, 51),
]


def env_of(parallelism: int = 2, mode: str = "BATCH", **options: Any) -> StreamExecutionEnvironment:
    return local_environment(parallelism, execution__runtime_mode=mode, **options)


def build_graph(parallelism: int = 2, mode: str = "BATCH") -> Graph:
    return Graph.from_collection(EDGES, env_of(parallelism, mode), VERTICES)


def records(stream: Any) -> list[Any]:
    """All records of a stream, sorted."""
    with stream.execute_and_collect() as results:
        return sorted(results)
