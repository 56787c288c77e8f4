"""Arrow columns that are made without pandas."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.drivers.spark.frames import binary, numbers, numbers_or_null

PROGRAM = """
import sys
from penstock.runtime.batch.exchange import Rows
from penstock.drivers.spark import batch_stage, epoch_stage

rows = Rows()
rows.append(0, 1, 0, b"payload", timestamp=5)
rows.append(-1, 0, 1, b"")
made = batch_stage.to_arrow(rows, {0: [7, 8]})
handed_on = epoch_stage._handed_on(made.select(batch_stage.SCHEMA.names[:-1]))
assert batch_stage.read_rows(handed_on).payloads == [b"payload", b""]
print("pandas" in sys.modules)
"""


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.float64])
def test_numbers_are_what_arrow_makes_of_them(kind: type) -> None:
    values: np.ndarray[Any, Any] = np.array([3, -1, 0, 127], kind)
    for some in (values, values[::2], values[:0]):
        assert numbers(some).equals(pa.array(some))


@pytest.mark.parametrize("values", [[], [1, 2, -(1 << 63)], [None], [1, None, 3] * 7, [None] * 8 + [4]])
def test_missing_numbers_are_null(values: list[int | None]) -> None:
    made = numbers_or_null(values)
    made.validate(full=True)
    assert made.to_pylist() == values
    assert made.null_count == values.count(None)


@pytest.mark.parametrize("items", [[], [b""], [b"a", b"", b"bcd"]])
def test_bytes_are_what_arrow_makes_of_them(items: list[bytes]) -> None:
    assert binary(items).equals(pa.array(items, pa.binary()))


def test_rows_of_a_stage_go_to_arrow_and_back_without_pandas() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("False", 0), done.stderr
