"""Vertex-centric iterations (Pregel): each active vertex receives its messages, may change, and sends more.

    class Least(ComputeFunction):
        def compute(self, vertex, messages):
            least = min(messages, default=vertex.value)
            if self.get_superstep_number() == 1 or least < vertex.value:
                self.set_new_vertex_value(least)
                self.send_message_to_all_neighbors(least)

    graph.run_vertex_centric_iteration(Least(), None, 100)

In superstep 1 all vertices are active, without messages; later only vertices that received messages. The iteration ends
when none did.
"""

from penstock.gelly.pregel.functions import ComputeFunction, MessageCombiner, VertexCentricConfiguration

__all__ = ["ComputeFunction", "MessageCombiner", "VertexCentricConfiguration"]
