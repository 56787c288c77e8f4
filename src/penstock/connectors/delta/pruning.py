"""What files and row groups need not be read, by what is said of their columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import pyarrow as pa

from penstock.connectors.delta.log import Figures


class FilePruning(Protocol):
    """Says which parts of a table may have rows that are wanted. Instances are pickled."""

    def may_have(self, figures: Mapping[str, Figures], partition: Mapping[str, pa.Scalar]) -> bool:
        """Whether a file may have, by its columns and the values of its partition."""
        ...

    def groups_of(self, file: Any) -> frozenset[int]:
        """The row groups of an open `pyarrow.parquet.ParquetFile` that may have."""
        ...
