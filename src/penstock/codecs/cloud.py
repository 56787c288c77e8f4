"""cloudpickle whose code keeps the name of its file, so that the tracebacks of functions show file and line.

From 3.1.3 on cloudpickle replaces the name by `<dynamic-code>`, for bytes that do not depend on where a function is
defined. Users need the place more than we need such bytes.
"""

from __future__ import annotations

import io
from collections import ChainMap
from collections.abc import Mapping
from types import CodeType
from typing import Any, ClassVar, Final

import cloudpickle

#: The name that cloudpickle gives to the files of all code.
_NO_FILE: Final = "<dynamic-code>"


def _reduce_code(code: CodeType) -> tuple[Any, ...]:
    make, parts, *rest = cloudpickle.Pickler.dispatch_table[CodeType](code)
    return (make, tuple(code.co_filename if part == _NO_FILE else part for part in parts), *rest)


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """cloudpickle's own; classes and functions of modules are pickled by reference."""

    dispatch_table: ClassVar[Mapping[type, Any]] = ChainMap(
        {CodeType: _reduce_code}, cloudpickle.Pickler.dispatch_table
    )


def dumps(value: Any) -> bytes:
    """Pickle a value, with the functions and classes that no module has. Raises whatever makes that impossible."""
    file = io.BytesIO()
    Pickler(file, protocol=5).dump(value)
    return file.getvalue()
