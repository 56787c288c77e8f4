"""Spark's daemon for Python workers, preloaded with a worker's modules: each worker forks from it ready to begin.

Spark starts it as `python -m penstock.drivers.spark.daemon pyspark.worker`. PySpark's own daemon loads nothing before
it forks, for fear of threads that a fork would not copy. So the modules loaded here start no Python threads and open no
sockets. They may include NumPy's random number generator: each worker reseeds it, as Python reseeds its own.
"""

import gc
import importlib
import os
import sys

from penstock.drivers.spark.python_workers import LOADED, leave_archives

leave_archives()

import pyspark.worker  # noqa: E402, F401 - what a worker runs
from pyspark.daemon import manager  # noqa: E402

import penstock.drivers.spark.epoch_stage  # noqa: E402
import penstock.drivers.spark.worker  # noqa: E402, F401 - what Penstock runs in it

#: The modules that user functions use. Imported by name, because they belong to a higher layer and this one must not
#: depend on it.
USER_API = [importlib.import_module(name) for name in os.environ.get(LOADED, "penstock.datastream").split()]


def _seed_numpy() -> None:
    generators = sys.modules.get("numpy.random")
    if generators is not None:
        generators.seed()


os.register_at_fork(after_in_child=_seed_numpy)

if __name__ == "__main__":
    gc.collect()
    gc.freeze()  # a garbage collection in a worker would copy the pages of all these modules
    manager()
