"""Loads Python and Penstock on all executors at the same time, while a job in micro-batch execution begins.

An executor takes seconds for its first Python task: it starts Python, which imports what tasks need. The stages of the
first epoch come one after another, and a later one may be the first to use an executor; then these seconds would come
twice.
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
    """Have every executor run a short task, in the background; nothing is done where all of Spark is one process.

    Args:
        spark: the session.
        tag: by which the job's own interrupt ends these tasks, too.
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
    """What each task runs, which makes no rows; pickled by value, it holds nothing of Penstock."""

    def load(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import importlib

        for _ in batches:
            pass  # Spark expects its input to be read
        importlib.import_module("penstock.drivers.spark.epoch_stage")
        importlib.import_module("penstock.datastream")
        yield from ()

    return load
