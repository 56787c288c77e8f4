"""A cloudpickle that keeps the file names of code, so that tracebacks of functions show file and line.

Since 3.1.3, cloudpickle replaces the name with `<dynamic-code>`, so that the bytes do not depend on where a function is
defined. Users need the location more than we need such bytes.
"""

from __future__ import annotations

import io
from collections import ChainMap
from collections.abc import Mapping
from types import CodeType
from typing import Any, ClassVar, Final

import cloudpickle

#: The file name that cloudpickle gives to all code.
_NO_FILE: Final = "<dynamic-code>"


def _reduce_code(code: CodeType) -> tuple[Any, ...]:
    make, parts, *rest = cloudpickle.Pickler.dispatch_table[CodeType](code)
    return (make, tuple(code.co_filename if part == _NO_FILE else part for part in parts), *rest)


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Keeps file names. Otherwise cloudpickle's own: classes and functions of modules are pickled by reference."""

    dispatch_table: ClassVar[Mapping[type, Any]] = ChainMap(
        {CodeType: _reduce_code}, cloudpickle.Pickler.dispatch_table
    )


def dumps(value: Any) -> bytes:
    """Pickle a value, including functions and classes that no module contains. Raises whatever error prevents that."""
    file = io.BytesIO()
    Pickler(file, protocol=5).dump(value)
    return file.getvalue()
