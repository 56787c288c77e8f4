"""Graph algorithms that run in numpy: a superstep costs a few passes over arrays, and no call for each vertex.

A `Kernel` does the work of a partition in each superstep. The arrays of a partition are `GraphArrays`: its vertices by
number, 0 to n - 1, and their edges. A kernel keeps its own arrays of n values in attributes.

    class Components(Kernel):                              # the least number that reaches a vertex
        direction, combine = EdgeDirection.ALL, Combine.MIN

        def begin(self, graph):                            # once
            self.label = graph.vertex_values.copy()
            self.changed = np.ones(len(graph), bool)

        def send(self, graph):                             # a value for each vertex, sent along all its edges
            return self.label, self.changed                # … of the vertices that changed

        def receive(self, graph, inbox):                   # one value for each vertex: the least that arrived
            self.changed = inbox.has & (inbox.values < self.label)
            self.label[self.changed] = inbox.values[self.changed]
            return int(self.changed.sum())                 # how many vertices are active now

        def results(self, graph):
            return [self.label]

    run_kernel(graph, Components(), max_iterations=100, name="Components", record=Vertex)

One superstep is `send` in all partitions, the exchange, and `receive`. Values for one vertex are combined before they
leave a partition, so a partition sends at most one value for each vertex of the others that its edges lead to. The loop
ends at the maximum, or when no vertex is active, or when `is_converged` returns true.

Sums over all partitions: `graph.add("name", number)` in `begin`, `send` or `receive` adds to a sum. Numbers added in
`begin` are in `graph.sums` from the first `send` on. Numbers added in `receive` and the next `send` replace the
previous sums from the following `receive` on; `is_converged` sees them first.

An array that `send` has returned must not be modified: it may travel by reference. Make new ones in `receive`, or copy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from penstock.gelly.base.elements import EdgeDirection
from penstock.gelly.columnar.arrays import GraphArrays
from penstock.gelly.columnar.combine import Combine, Inbox


class Kernel(ABC):
    """See the module docstring. Every partition has its own copy, made by pickling.

    Attributes:
        direction: the edges of a vertex that carry its value: outgoing, incoming, or all.
        combine: how several values for one vertex are combined.
    """

    direction: ClassVar[EdgeDirection] = EdgeDirection.OUT
    combine: ClassVar[Combine] = Combine.SUM

    @abstractmethod
    def begin(self, graph: GraphArrays) -> None:
        """Prepare; the arrays are complete."""

    @abstractmethod
    def send(self, graph: GraphArrays) -> Any:
        """Return the value that each vertex sends along its edges: an array of n values of any numpy type.

        It may also return a tuple of this array and an array of n booleans: which vertices send.
        """

    def along_edges(self, values: Any, edge_values: Any) -> Any:
        """Transform values along edges: one for each edge, from the vertex at its origin. Unchanged by default.

        Args:
            values: a value for each edge; may be changed.
            edge_values: the values of the edges, in the same order: an array of numbers, a list of anything else, or
                None if edges have no values.
        """
        return values

    @abstractmethod
    def receive(self, graph: GraphArrays, inbox: Inbox) -> int:
        """Process the values that arrived; return how many vertices of the partition are active now."""

    def is_converged(self, sums: dict[str, float]) -> bool:
        """Return whether the previous superstep, which produced these sums, was the last one."""
        return False

    @abstractmethod
    def results(self, graph: GraphArrays) -> Sequence[Any]:
        """Return the columns of the result besides the ids: arrays or lists of n values."""

    def chosen(self, graph: GraphArrays) -> Any:
        """Return which vertices are in the result: an array of n booleans, or None for all."""
        return None
