"""Which classes the pickles of a state file name, and the fields that these had (H4).

They are found as a by-product: unpickling what was captured looks every class up once. A shape is the names of a
dataclass's or NamedTuple's fields, or None for another class. Classes that cloudpickle writes out in full, because no
name finds them, are not among them.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from importlib import import_module
from io import BytesIO
from typing import Any

from penstock.base.class_types import class_fields

#: By `module:qualified name`.
Shapes = dict[str, tuple[str, ...] | None]


class _Recorder(pickle.Unpickler):
    def __init__(self, data: bytes) -> None:
        super().__init__(BytesIO(data))
        self.shapes: Shapes = {}

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        if isinstance(found, type):
            self.shapes[f"{module}:{name}"] = class_fields(found)
        return found


def loads_with_shapes(data: bytes) -> tuple[Any, Shapes]:
    """The object that was pickled, and the shapes of the classes that its pickle names."""
    recorder = _Recorder(data)
    return recorder.load(), recorder.shapes


def find_class(module: str, name: str) -> Any:
    """What a pickle would get for a name; raises what looking it up raises."""
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def are_as_before(shapes: Shapes) -> bool:
    """Whether today's program has all these classes, with these fields."""
    for path, fields in shapes.items():
        try:
            found = find_class(*path.split(":"))
        except (ImportError, AttributeError):
            return False
        if not isinstance(found, type) or class_fields(found) != fields:
            return False
    return True


def merged(shapes: list[Shapes | None]) -> Shapes | None:
    """The shapes of several files; None when one does not tell, or two of them tell different things."""
    union: Shapes = {}
    for one in shapes:
        if one is None or any(union.get(path, fields) != fields for path, fields in one.items()):
            return None
        union.update(one)
    return union


def shapes_from_json(parts: Mapping[str, list[str] | None]) -> Shapes:
    """Shapes as they were before they became JSON."""
    return {path: None if fields is None else tuple(fields) for path, fields in parts.items()}
