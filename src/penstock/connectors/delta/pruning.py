"""Skips files and row groups by their column statistics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import pyarrow as pa

from penstock.connectors.delta.log import Figures


class FilePruning(Protocol):
    """Selects the parts of a table that may contain wanted rows. Instances are pickled."""

    def may_have(self, figures: Mapping[str, Figures], partition: Mapping[str, pa.Scalar]) -> bool:
        """Return whether a file may contain wanted rows, by its column statistics and partition values."""
        ...

    def select_row_groups(self, file: Any) -> frozenset[int]:
        """Return the row groups of an open `pyarrow.parquet.ParquetFile` that may contain wanted rows."""
        ...
