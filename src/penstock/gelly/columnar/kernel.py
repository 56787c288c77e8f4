"""Graph algorithms whose work is done by numpy: a superstep costs a few passes over arrays, and no call for a vertex.

A `Kernel` is what the partitions of a graph do in each superstep. The arrays of a partition are `GraphArrays`: its
vertices by number, 0 to n - 1, and the edges at them. A kernel keeps its own arrays of n values in attributes.

    class Components(Kernel):                              # the least number that reaches a vertex
        direction, combine = EdgeDirection.ALL, Combine.MIN

        def begin(self, graph):                            # once
            self.label = graph.vertex_values.copy()
            self.changed = np.ones(len(graph), bool)

        def send(self, graph):                             # a value for each vertex, which goes along all its edges
            return self.label, self.changed                # … of the vertices that changed

        def receive(self, graph, inbox):                   # one value for each vertex: of what came, the least
            self.changed = inbox.has & (inbox.values < self.label)
            self.label[self.changed] = inbox.values[self.changed]
            return int(self.changed.sum())                 # how many vertices are active now

        def results(self, graph):
            return [self.label]

    run_kernel(graph, Components(), max_iterations=100, name="Components", record=Vertex)

One superstep is `send` in all partitions, the exchange, and `receive`. What is sent to one vertex is combined before it
leaves a partition, so a partition sends no more values than the others have vertices that its edges lead to. The loop
ends at the maximum, or when no vertex is active, or when `is_converged` says so.

Figures of all partitions: `graph.add("name", number)` in `begin`, `send` or `receive` adds to a sum. What `begin` adds
is in `graph.sums` from the first `send` on. What `receive` and the `send` after it add is there, anew, from the next
`receive` on; `is_converged` sees it first.

Nobody changes an array that `send` has returned: it may travel by reference. Make new ones in `receive`, or copy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from penstock.gelly.base.elements import EdgeDirection
from penstock.gelly.columnar.arrays import GraphArrays
from penstock.gelly.columnar.combine import Combine, Inbox


class Kernel(ABC):
    """See the module's text. Every partition has a copy of its own, made by pickling.

    Attributes:
        direction: along which edges of a vertex its value goes: those that leave it, those that lead to it, or all.
        combine: what becomes of several values for one vertex.
    """

    direction: ClassVar[EdgeDirection] = EdgeDirection.OUT
    combine: ClassVar[Combine] = Combine.SUM

    @abstractmethod
    def begin(self, graph: GraphArrays) -> None:
        """Get ready; the arrays are complete."""

    @abstractmethod
    def send(self, graph: GraphArrays) -> Any:
        """The value that each vertex sends along its edges: an array of n values of any type of numpy's.

        Or a tuple of it and an array of n booleans: which vertices send.
        """

    def along_edges(self, values: Any, edge_values: Any) -> Any:
        """What edges make of values: one of each edge, of the vertex that it comes from. By default the same.

        Args:
            values: a value for each edge; may be changed.
            edge_values: the values of the edges, in the same order: an array of numbers, a list of anything else, or
                None if edges have none.
        """
        return values

    @abstractmethod
    def receive(self, graph: GraphArrays, inbox: Inbox) -> int:
        """Take in what came; returns how many vertices of the partition are active now."""

    def is_converged(self, sums: dict[str, float]) -> bool:
        """Whether the superstep before, of which these are the sums, was the last one."""
        return False

    @abstractmethod
    def results(self, graph: GraphArrays) -> Sequence[Any]:
        """The columns of the result besides the ids: arrays or lists of n values."""

    def chosen(self, graph: GraphArrays) -> Any:
        """Which vertices are in the result: an array of n booleans, or None for all."""
        return None
