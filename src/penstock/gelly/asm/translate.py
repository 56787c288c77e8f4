"""Replaces the ids or values of graphs, as algorithms for `Graph.run`."""

from __future__ import annotations

from typing import Any, ClassVar

from penstock.base.errors import WrongTypeError
from penstock.gelly.base.algorithm import GraphAlgorithm


class _Translate(GraphAlgorithm[Any]):
    """Base class of translations.

    Args:
        translator: a function of the old id or value, or an object with a method `translate`.
    """

    method: ClassVar[str]

    def __init__(self, translator: Any) -> None:
        if not callable(getattr(translator, "translate", translator)):
            raise WrongTypeError(
                f"{type(self).__name__} takes a function, or an object with a method translate, not {translator!r}"
            )
        self._translator = translator

    def run(self, graph: Any) -> Any:
        """Return the graph with the new ids or values."""
        return getattr(graph, self.method)(self._translator)


class TranslateGraphIds(_Translate):
    """Replaces each id by the result of a function of the id; different ids must stay different."""

    method = "translate_graph_ids"


class TranslateVertexValues(_Translate):
    """Replaces the value of each vertex by the result of a function of the value."""

    method = "translate_vertex_values"


class TranslateEdgeValues(_Translate):
    """Replaces the value of each edge by the result of a function of the value."""

    method = "translate_edge_values"
