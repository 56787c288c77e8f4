"""Graph algorithms as kernels over the arrays of a partition: see `kernel`, and `run_kernel` there.

A partition is a few arrays (`arrays`). Vertices have numbers, and edges are sorted by target. At the beginning,
each partition sends every owner the list of its vertices that will get values, in order. A superstep is then a
gather (`values[sources]`), a `reduceat` over the edges, one array for each other partition, and at the owner
`values[places] = combine(values[places], part)`. Neither ids nor hashes are needed again.
"""

from penstock.gelly.columnar.arrays import Combine, GraphArrays, Inbox
from penstock.gelly.columnar.kernel import Kernel, run_kernel

__all__ = ["Combine", "GraphArrays", "Inbox", "Kernel", "run_kernel"]
