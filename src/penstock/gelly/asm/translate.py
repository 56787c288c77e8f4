"""Graphs with other ids or values, as algorithms for `Graph.run`."""

from __future__ import annotations

from typing import Any, ClassVar

from penstock.base.errors import WrongTypeError
from penstock.gelly.base.algorithm import GraphAlgorithm


class _Translate(GraphAlgorithm[Any]):
    """What translations share.

    Args:
        translator: a function of the old id or value, or an object with `translate`.
    """

    method: ClassVar[str]

    def __init__(self, translator: Any) -> None:
        if not callable(getattr(translator, "translate", translator)):
            raise WrongTypeError(
                f"{type(self).__name__} takes a function, or an object with a method translate, not {translator!r}"
            )
        self._translator = translator

    def run(self, graph: Any) -> Any:
        """The graph with the new ids or values."""
        return getattr(graph, self.method)(self._translator)


class TranslateGraphIds(_Translate):
    """Replaces each id by what a function of it returns; different ids must stay different."""

    method = "translate_graph_ids"


class TranslateVertexValues(_Translate):
    """Replaces the value of each vertex by what a function of it returns."""

    method = "translate_vertex_values"


class TranslateEdgeValues(_Translate):
    """Replaces the value of each edge by what a function of it returns."""

    method = "translate_edge_values"
