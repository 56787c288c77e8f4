"""The classes that the pickles of a state file name, with the fields that they had (H4).

They are a by-product of unpickling captured state, which looks up every class once. A shape is the field names of a
dataclass or NamedTuple, or None for any other class. Classes that cloudpickle serializes by value, because they cannot
be imported, are not included.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from importlib import import_module
from io import BytesIO
from typing import Any

from penstock.base.class_types import class_fields

#: Shapes by `module:qualified name`.
Shapes = dict[str, tuple[str, ...] | None]


class _Recorder(pickle.Unpickler):
    def __init__(self, data: bytes) -> None:
        super().__init__(BytesIO(data))
        self.shapes: Shapes = {}

    def find_class(self, module: str, name: str) -> Any:
        obj = super().find_class(module, name)
        if isinstance(obj, type):
            self.shapes[f"{module}:{name}"] = class_fields(obj)
        return obj


def loads_with_shapes(data: bytes) -> tuple[Any, Shapes]:
    """Return the unpickled object, and the shapes of the classes that its pickle names."""
    recorder = _Recorder(data)
    return recorder.load(), recorder.shapes


def find_class(module: str, name: str) -> Any:
    """Look up a class by name as unpickling does; raises the errors of the lookup."""
    obj: Any = import_module(module)
    for part in name.split("."):
        obj = getattr(obj, part)
    return obj


def are_as_before(shapes: Shapes) -> bool:
    """Return whether today's program has all these classes, with these fields."""
    for path, fields in shapes.items():
        try:
            obj = find_class(*path.split(":"))
        except (ImportError, AttributeError):
            return False
        if not isinstance(obj, type) or class_fields(obj) != fields:
            return False
    return True


def merged(shapes: list[Shapes | None]) -> Shapes | None:
    """Merge the shapes of several files; None if the shapes of one are unknown, or two conflict."""
    union: Shapes = {}
    for file_shapes in shapes:
        if file_shapes is None or any(union.get(path, fields) != fields for path, fields in file_shapes.items()):
            return None
        union.update(file_shapes)
    return union


def shapes_from_json(parts: Mapping[str, list[str] | None]) -> Shapes:
    """Convert shapes back from JSON."""
    return {path: None if fields is None else tuple(fields) for path, fields in parts.items()}
