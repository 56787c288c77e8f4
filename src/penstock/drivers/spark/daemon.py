"""Spark's daemon for Python workers, with a worker's modules loaded: each worker forks from it ready to begin.

Spark starts it as `python -m penstock.drivers.spark.daemon pyspark.worker`. PySpark's own daemon loads nothing before
it forks, for fear of threads that a fork would not copy. So what is loaded here starts no Python thread and opens no
socket. Nor is there a generator of random numbers among it: all workers would draw the same ones.
"""

import gc
import importlib

import pyspark.worker  # noqa: F401 - what a worker runs
from pyspark.daemon import manager

import penstock.drivers.spark.epoch_stage
import penstock.drivers.spark.executor_factory
import penstock.drivers.spark.worker  # noqa: F401 - what Penstock runs in it

#: What user functions are made of. By name, as it stands above this layer, which asks nothing of it.
USER_API = importlib.import_module("penstock.datastream")

if __name__ == "__main__":
    gc.collect()
    gc.freeze()  # a collection in a worker would copy the pages of all these modules
    manager()
