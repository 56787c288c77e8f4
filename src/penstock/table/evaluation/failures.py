"""What a kernel says of values that it cannot take, in words for whoever wrote the query."""

from __future__ import annotations

import pyarrow as pa

from penstock.table.data.errors import TableRuntimeError


def explained(error: pa.ArrowInvalid) -> TableRuntimeError:
    """The error of a query for one of Arrow."""
    text = str(error)
    return TableRuntimeError("Division by zero" if "divide by zero" in text.lower() else text)
