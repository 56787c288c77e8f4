"""Graph algorithms as kernels over the arrays of a partition: see `kernel`, and `run_kernel` in `running`."""

from penstock.gelly.columnar.arrays import GraphArrays
from penstock.gelly.columnar.combine import Combine, Inbox
from penstock.gelly.columnar.kernel import Kernel
from penstock.gelly.columnar.running import run_kernel

__all__ = ["Combine", "GraphArrays", "Inbox", "Kernel", "run_kernel"]
