"""Graph validators; see `Graph.validate`."""

from __future__ import annotations

from typing import Any

from penstock.gelly.base.algorithm import GraphValidator
from penstock.gelly.base.graph_base import GraphBase
from penstock.gelly.base.streams import FIRST, without


class InvalidVertexIdsValidator(GraphValidator):
    """Checks that both ends of every edge are vertices of the graph."""

    def validate(self, graph: GraphBase) -> bool:
        """Return whether the graph is valid. Runs a job."""
        ids = graph.get_edges().flat_map(_get_endpoint_ids).name("Edge Ids")
        missing = without(ids, graph.get_vertices(), _itself, FIRST).name("Missing Vertices")
        return not missing.execute_and_collect("Validate vertex ids", 1)


def _itself(value: Any) -> Any:
    return value


def _get_endpoint_ids(edge: Any) -> list[Any]:
    return [edge[0], edge[1]]
