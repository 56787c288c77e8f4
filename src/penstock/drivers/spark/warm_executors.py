"""Loads Python and Penstock on all executors in parallel while a job in micro-batch execution begins.

An executor takes seconds for its first Python task: it starts Python, which imports the modules that tasks need. The
stages of the first epoch run one after another, and a later one may be the first to use an executor; the job would then
lose these seconds twice.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from penstock.drivers.spark.batch_frames import row_type
from penstock.drivers.spark.handle import SparkHandle, short_reason

if TYPE_CHECKING:
    import pyarrow

    from penstock.drivers.spark.handle import Entry

_log = logging.getLogger("penstock.spark")


def warm_executors(spark: SparkHandle, tag: str) -> None:
    """Run a short task on every executor in the background. Do nothing if all of Spark is one process.

    Args:
        spark: the session.
        tag: the tag that the job's interrupt uses to end these tasks as well.
    """
    slots = None if spark.is_one_process else spark.slots_now()
    if slots is not None:
        thread = threading.Thread(target=_warm, args=(spark, tag, slots), name="penstock-warm-executors", daemon=True)
        thread.start()


def _warm(spark: SparkHandle, tag: str, slots: int) -> None:
    try:
        spark.ship_package()
        spark.begin(tag, "Penstock loads Python on the executors")
        spark.numbers(slots).mapInArrow(_entry(), row_type()).collect()
    except Exception as error:  # noqa: BLE001 - the job itself will say what is wrong
        _log.debug("executors were not warmed: %s", short_reason(error))


def _entry() -> Entry:
    """Return the function of the tasks. It makes no rows; it is pickled by value and references nothing of Penstock."""

    def load(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import importlib

        for _ in batches:
            pass  # Spark expects a task to read its input
        importlib.import_module("penstock.drivers.spark.epoch_stage")
        importlib.import_module("penstock.datastream")
        yield from ()

    return load
