"""Gather-sum-apply iterations: gather a value for each edge, sum the values at each vertex, and apply the sum to it.

    distances = graph.run_gather_sum_apply_iteration(
        lambda neighbor: neighbor.neighbor_value + neighbor.edge_value,
        min,
        lambda new, current: new if new < current else None,
        100,
    )

In superstep 1 all vertices are neighbours; later only vertices whose value was set in the previous superstep.
"""

from penstock.gelly.gsa.functions import ApplyFunction, GatherFunction, GSAConfiguration, Neighbor, SumFunction

__all__ = ["ApplyFunction", "GSAConfiguration", "GatherFunction", "Neighbor", "SumFunction"]
