"""The function that Spark runs as a worker."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.codecs import cloud
from penstock.drivers.spark.handle import PYTHON_REMEDY
from penstock.drivers.spark.python_workers import FAILED, RETRIED

if TYPE_CHECKING:
    import pyarrow

    from penstock.drivers.spark.handle import Entry
    from penstock.drivers.spark.python_workers import WorkerSettings


def make_entry(settings: WorkerSettings) -> Entry:
    """Return the function that Spark runs as a worker's only task.

    It is pickled by value and refers to nothing in Penstock except bytes. So it can first check that the worker's
    Python finds Penstock, and report in plain words if it does not.
    """
    payload = cloud.dumps(settings)
    own = f"{sys.executable} ({sys.version.split()[0]})"
    remedy = f"{PYTHON_REMEDY}, to a Python with the packages of this program's Python, {own}"
    paths = tuple(path or os.getcwd() for path in sys.path) if settings.is_local else ()

    def worker(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import struct
        import sys as worker_sys

        import pyarrow as arrow
        from pyspark import TaskContext

        def column(text: str) -> pyarrow.StringArray:
            # Built from buffers: given a list, pyarrow checks whether it comes from pandas, whose import takes a
            # second.
            data = text.encode()
            ends = struct.pack("=ii", 0, len(data))
            return arrow.StringArray.from_buffers(1, arrow.py_buffer(ends), arrow.py_buffer(data))

        def run() -> tuple[str, str]:
            context = TaskContext.get()
            if context is not None and context.attemptNumber() > 0:
                # Spark retries a task that failed. The job master requests a new worker itself once it is notified of
                # the failure, which is when this retry has ended. So return before loading Penstock.
                return RETRIED, "its Python process or its Spark executor died"
            worker_sys.path.extend(path for path in paths if path not in worker_sys.path)
            try:
                from penstock.drivers.spark.worker import run_worker
            except ImportError as error:
                version = worker_sys.version.split()[0]
                lacks = f"the workers' Python, {worker_sys.executable} ({version}), lacks a module: {error}"
                return FAILED, f"{lacks}; {remedy}"
            return run_worker(payload)

        for _ in batches:
            pass  # Spark expects its input to be read
        outcome, detail = run()
        yield arrow.RecordBatch.from_arrays([column(outcome), column(detail)], ["outcome", "detail"])

    return worker
