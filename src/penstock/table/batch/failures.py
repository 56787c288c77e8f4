"""Translation of Spark's errors to Penstock's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from penstock.base.errors import OperationError, PenstockError
from penstock.drivers.spark.handle import short_reason
from penstock.table.batch.native_numbers import RAISED
from penstock.table.data.errors import TableRuntimeError

_OF_KERNELS: Final = re.compile(r"\bTableRuntimeError: (.*)")
_OF_SPARK: Final = re.compile(re.escape(RAISED) + r"(.*?)(?: SQLSTATE.*)?$", re.MULTILINE)


@contextmanager
def failures_told(doing: str) -> Iterator[None]:
    """Raise `TableRuntimeError` for a value that a function rejects, and `OperationError` for other failures."""
    try:
        yield
    except PenstockError:
        raise
    except Exception as error:
        text = str(error)
        matches = _OF_KERNELS.findall(text) or _OF_SPARK.findall(text)
        if matches:
            raise TableRuntimeError(matches[-1].strip()) from None
        raise OperationError(f"{doing} failed: {short_reason(error)}") from error
