"""Explains the errors of kernels to the author of a query."""

from __future__ import annotations

import pyarrow as pa

from penstock.table.data.errors import TableRuntimeError


def explained(error: pa.ArrowInvalid) -> TableRuntimeError:
    """Convert an Arrow error to the error of a query."""
    text = str(error)
    return TableRuntimeError("Division by zero" if "divide by zero" in text.lower() else text)
