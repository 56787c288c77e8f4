"""Loading of classes and functions that an option names."""

from __future__ import annotations

import importlib
from typing import Any


def named_object(module_name: str, name: str) -> Any:
    """Import a module and return its attribute of this name, which may have dots. Import errors propagate."""
    value: Any = importlib.import_module(module_name)
    for part in name.split("."):
        value = getattr(value, part)
    return value
