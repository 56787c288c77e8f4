"""What an option names of the program: a class or a function of a module."""

from __future__ import annotations

import importlib
from typing import Any


def named_object(module_name: str, name: str) -> Any:
    """Import a module and take what it has under a name, which may have dots. Raises whatever the import raises."""
    found: Any = importlib.import_module(module_name)
    for part in name.split("."):
        found = getattr(found, part)
    return found
