"""Scatter-gather iterations (signal/collect): active vertices send messages, and vertices that receive any may change.

    class Tell(ScatterFunction):
        def send_messages(self, vertex):
            for edge in self.get_edges():
                self.send_message_to(edge.target, vertex.value + edge.value)

    class TakeLeast(GatherFunction):
        def update_vertex(self, vertex, in_messages):
            least = min(in_messages)
            if least < vertex.value:
                self.set_new_vertex_value(least)

    graph.run_scatter_gather_iteration(Tell(), TakeLeast(), 100)

In superstep 1 all vertices send; later only vertices whose value was set in the previous superstep.
"""

from penstock.gelly.spargel.functions import GatherFunction, ScatterFunction, ScatterGatherConfiguration

__all__ = ["GatherFunction", "ScatterFunction", "ScatterGatherConfiguration"]
