"""Gather-sum-apply iterations: a value for each edge, summed for each vertex, which then may change.

    distances = graph.run_gather_sum_apply_iteration(
        lambda neighbor: neighbor.neighbor_value + neighbor.edge_value,
        min,
        lambda new, current: new if new < current else None,
        100,
    )

In superstep 1 all vertices are neighbours; later those whose value was set in the superstep before.
"""

from penstock.gelly.gsa.functions import ApplyFunction, GatherFunction, GSAConfiguration, Neighbor, SumFunction

__all__ = ["ApplyFunction", "GSAConfiguration", "GatherFunction", "Neighbor", "SumFunction"]
