"""Unpickles state with the current classes, and converts instances whose fields were added or removed (H4).

A state file lists its classes, and the fields that they had. If none of these have changed, which is the usual case,
plain `pickle.loads` loads the values. Otherwise:

- A registered class (see `migrations`) is replaced by its successor.
- A missing class raises an error that names the state that needs it, and says what to do.
- An instance of a dataclass gets the defaults of new fields, and loses removed fields; a new field without default
  is an error.
- The fields of a NamedTuple, which is pickled by position, are assigned by name.
- Classes with their own `__setstate__` or `__reduce__` handle changes themselves.

A file without such a list (written by another tool) is loaded by the same rules as far as possible. The old fields of a
NamedTuple are then assumed to be the first of its current fields.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any, Final

from penstock.base.class_types import class_fields
from penstock.state.errors import StateError, StateMigrationError
from penstock.state.key_bytes import is_plain
from penstock.state.key_groups import assign_key_group
from penstock.state.keys import with_one_nan
from penstock.state.shapes import Shapes, are_as_before, find_class
from penstock.state.stand_ins import (
    make_dataclass_substitute,
    make_function_substitute,
    make_tuple_substitute,
    script_class,
)

#: The opcode that brings every class or function into a pickle of protocol 4 and above.
STACK_GLOBAL: Final = b"\x93"
#: The module with which cloudpickle rebuilds classes: unnamed ones, and in older files the classes of the user's
#: script.
CLOUDPICKLE: Final = "cloudpickle.cloudpickle"
SCRIPT: Final = "__main__"


class StateLoader:
    """Loads the files of one state. `has_changed`: whether any loaded value differs from the written one."""

    def __init__(
        self,
        owner: str,
        state: str,
        max_parallelism: int,
        migrations: Mapping[str, Callable[..., Any]] | None = None,
        shapes: Shapes | None = None,
    ) -> None:
        self.has_changed = False
        self._where = f"{owner}: state {state!r}"
        self._max_parallelism = max_parallelism
        self._migrations = dict(migrations or {})
        #: for files that do not list theirs
        self._shapes: Shapes = dict(shapes or {})

    def for_file(self, shapes: Shapes | None) -> Callable[[bytes], Any]:
        """Return the function that loads the pickles of a file with these shapes."""
        if shapes is not None and not self._concerns(shapes) and are_as_before(shapes):
            return pickle.loads
        return _CarefulLoads(self, self._shapes if shapes is None else shapes, shapes is not None)

    def _concerns(self, shapes: Shapes) -> bool:
        """Return whether one of these shapes, or a class of the user's script, is registered."""
        return any(path in shapes or path.startswith(f"{SCRIPT}:") for path in self._migrations)

    def check_key(self, key: Any, key_group: int) -> None:
        """Raise if a key of a changed class no longer belongs to its key group."""
        if self.has_changed and assign_key_group(key, self._max_parallelism) != key_group:
            raise self.other_key(key)

    def renewed_key(self, key: Any, key_group: int) -> Any:
        """Return the current form of a key from an older version's file; raises if its key group has changed."""
        if is_plain(key):
            return key
        key = with_one_nan(key)
        if not self.has_changed and assign_key_group(key, self._max_parallelism) != key_group:
            raise self.older_key(key)
        return key

    def older_key(self, key: Any) -> StateError:
        """Return the error for a key that an older release put into another key group."""
        return StateError(
            f"{self._where}: an older release of Penstock wrote it, which treated keys such as {key!r} (of type "
            f"{type(key).__qualname__}) as equal to others and put them into other key groups. Start the program "
            "without this state, or read it with the state processor of that release and write it with that of this "
            "release"
        )

    def other_key(self, key: Any) -> StateMigrationError:
        """Return the error for a key that would not be found again."""
        return StateMigrationError(
            f"{self._where}: its keys are instances of {type(key).__qualname__}, whose name or fields changed, so that "
            "they hash differently; the class of a key must not change: restore its old name and fields, or read the "
            "state with the state processor and rewrite it"
        )

    def gone(self, module: str, name: str, error: Exception) -> StateMigrationError:
        """Return the error for a class that cannot be found."""
        return StateMigrationError(
            f"{self._where} holds instances of class {name!r} of module {module!r}, which no longer exists "
            f"({error}): restore it, or register its successor with "
            f'penstock.state.migrations.register("{module}:{name}", new_class_or_function)'
        )

    def no_default(self, cls: type, field: str) -> StateMigrationError:
        """Return the error for a new field without a default, which has no value in a snapshot."""
        return StateMigrationError(
            f"{self._where}: field {field!r} of class {cls.__qualname__!r} of module {cls.__module__!r} is new and has "
            f"no default: give it one, or register a function that makes the new object with "
            f'penstock.state.migrations.register("{cls.__module__}:{cls.__qualname__}", function)'
        )

    def unreadable(self, error: Exception) -> StateMigrationError:
        """Return the error for any other exception that a changed class raised."""
        return StateMigrationError(
            f"{self._where}: a value can no longer be read: {type(error).__name__}: {error}; if its class has changed, "
            "register a function that makes the new object from the old values with "
            'penstock.state.migrations.register("module:Class", function)'
        )

    def find_successor(self, path: str) -> Callable[..., Any] | None:
        """Return the registered successor of a class, or None."""
        return self._migrations.get(path)


class _CarefulLoads:
    """Loads the pickles of a file in which some classes may have changed."""

    def __init__(self, loader: StateLoader, shapes: Shapes, knows_all: bool) -> None:
        self.found: dict[tuple[str, str], Any] = {}
        self._loader = loader
        self._shapes = shapes
        self._knows_all = knows_all
        #: instances that may still receive attributes
        self._drafts: list[Any] = []

    def __call__(self, data: bytes) -> Any:
        if STACK_GLOBAL not in data:
            return pickle.loads(data)
        value = _Unpickler(BytesIO(data), self).load()
        while self._drafts:
            self._drafts.pop().__setstate__({})
        return value

    def find(self, module: str, name: str) -> Any:
        """Return the class or function that a pickle names, or its replacement."""
        resolved = self.found[module, name] = self._resolve(module, name)
        return resolved

    def _resolve(self, module: str, name: str) -> Any:
        path, loader = f"{module}:{name}", self._loader
        registered = self._registered(path)
        if registered is not None:
            return registered
        try:
            resolved = find_class(module, name)
        except (ImportError, AttributeError) as error:
            raise loader.gone(module, name, error) from error
        if module == CLOUDPICKLE:
            return script_class(name, resolved, self._script_class)
        return self._choose_substitute(resolved, self._shapes.get(path)) if isinstance(resolved, type) else resolved

    def _registered(self, path: str) -> type | None:
        """Return the replacement for a registered class; None if the class is not registered."""
        successor = self._loader.find_successor(path)
        if successor is None:
            return None
        self._loader.has_changed = True
        if not isinstance(successor, type):
            return make_function_substitute(successor, self._drafts)
        fields = self._shapes.get(path)
        # The fields of a class of the user's script are unknown.
        if fields is None and dataclasses.is_dataclass(successor):
            return make_dataclass_substitute(successor, None, self._drafts, self._loader.no_default, self._on_change)
        return self._choose_substitute(successor, fields)

    def _script_class(self, name: str) -> type | None:
        key = (SCRIPT, name)
        if key not in self.found:
            self.found[key] = self._registered(f"{SCRIPT}:{name}")
        resolved: type | None = self.found[key]
        return resolved

    def _choose_substitute(self, cls: type, before: tuple[str, ...] | None) -> type:
        """Return the class itself if its instances need no check, else a class that checks and converts them."""
        fields = class_fields(cls)
        if fields is None or before == fields or (before is None and self._knows_all):
            return cls
        if issubclass(cls, tuple):
            return (
                cls if before is None else make_tuple_substitute(cls, before, self._loader.no_default, self._on_change)
            )
        return make_dataclass_substitute(cls, before, self._drafts, self._loader.no_default, self._on_change)

    def _on_change(self) -> None:
        self._loader.has_changed = True


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: BytesIO, loads: _CarefulLoads) -> None:
        super().__init__(file)
        self._careful = loads

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self._careful.found[module, name]
        except KeyError:
            return self._careful.find(module, name)
