"""Unpickling state by today's classes, and mending instances where fields came or went (H4).

A state file says which classes it holds, and the fields that these had. When nothing about them has changed, which is
the rule, plain `pickle.loads` loads the values. Otherwise:

- A registered class (see `migrations`) is replaced by its successor.
- A class that cannot be found is an error that says which state needs it, and what to do.
- An instance of a dataclass gets the defaults of its new fields, and loses those that the class has lost; a new field
  without default is an error.
- The fields of a NamedTuple, which is pickled by position, are dealt out by name.
- Classes with `__setstate__` or `__reduce__` of their own see to themselves.

A file that says nothing (one that another tool wrote) is loaded by the same rules as far as possible. There the fields
that a NamedTuple had are taken for the first ones of today's.
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
from penstock.state.key_groups import key_group_of
from penstock.state.keys import with_one_nan
from penstock.state.shapes import Shapes, are_as_before, find_class
from penstock.state.stand_ins import dataclass_stand_in, function_stand_in, script_class, tuple_stand_in

#: The opcode with which every class or function comes into a pickle of protocol 4 and above.
STACK_GLOBAL: Final = b"\x93"
#: Where cloudpickle keeps what rebuilds classes: those without a name, and in older files those of the user's script.
CLOUDPICKLE: Final = "cloudpickle.cloudpickle"
SCRIPT: Final = "__main__"


class StateLoader:
    """Loads the files of one state. `has_changed` says whether any value came out different from what was written."""

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
        #: of files that do not tell
        self._shapes: Shapes = dict(shapes or {})

    def for_file(self, shapes: Shapes | None) -> Callable[[bytes], Any]:
        """What loads the pickles of a file of these shapes."""
        if shapes is not None and not self._concerns(shapes) and are_as_before(shapes):
            return pickle.loads
        return _CarefulLoads(self, self._shapes if shapes is None else shapes, shapes is not None)

    def _concerns(self, shapes: Shapes) -> bool:
        """Whether anything of these shapes, or a class of the user's script, is registered."""
        return any(path in shapes or path.startswith(f"{SCRIPT}:") for path in self._migrations)

    def check_key(self, key: Any, key_group: int) -> None:
        """Raise when a key of a changed class no longer belongs where it lies."""
        if self.has_changed and key_group_of(key, self._max_parallelism) != key_group:
            raise self.other_key(key)

    def renewed_key(self, key: Any, key_group: int) -> Any:
        """A key of a file of an older version, as it is now; raises when it does not belong there any more."""
        if is_plain(key):
            return key
        key = with_one_nan(key)
        if not self.has_changed and key_group_of(key, self._max_parallelism) != key_group:
            raise self.older_key(key)
        return key

    def older_key(self, key: Any) -> StateError:
        """The error for a key that an older release had elsewhere."""
        return StateError(
            f"{self._where}: an older release of Penstock wrote it, which treated keys such as {key!r} (of type "
            f"{type(key).__qualname__}) as equal to others and put them into other key groups. Start the program "
            "without this state, or read it with the state processor of that release and write it with that of this "
            "release"
        )

    def other_key(self, key: Any) -> StateMigrationError:
        """The error for a key that would not be found again."""
        return StateMigrationError(
            f"{self._where}: its keys are instances of {type(key).__qualname__}, whose name or fields changed, so that "
            "they hash differently; the class of a key must not change: restore its old name and fields, or read the "
            "state with the state processor and rewrite it"
        )

    def gone(self, module: str, name: str, error: Exception) -> StateMigrationError:
        """The error for a class that cannot be found."""
        return StateMigrationError(
            f"{self._where} holds instances of class {name!r} of module {module!r}, which no longer exists "
            f"({error}): restore it, or register its successor with "
            f'penstock.state.migrations.register("{module}:{name}", new_class_or_function)'
        )

    def no_default(self, cls: type, field: str) -> StateMigrationError:
        """The error for a field of which a snapshot has no value."""
        return StateMigrationError(
            f"{self._where}: field {field!r} of class {cls.__qualname__!r} of module {cls.__module__!r} is new and has "
            f"no default: give it one, or register a function that makes the new object with "
            f'penstock.state.migrations.register("{cls.__module__}:{cls.__qualname__}", function)'
        )

    def unreadable(self, error: Exception) -> StateMigrationError:
        """The error for whatever else a changed class raised."""
        return StateMigrationError(
            f"{self._where}: a value can no longer be read: {type(error).__name__}: {error}; if its class has changed, "
            "register a function that makes the new object from the old values with "
            'penstock.state.migrations.register("module:Class", function)'
        )

    def successor_of(self, path: str) -> Callable[..., Any] | None:
        """What a class was registered to become."""
        return self._migrations.get(path)


class _CarefulLoads:
    """Loads the pickles of a file some of whose classes may have changed."""

    def __init__(self, loader: StateLoader, shapes: Shapes, knows_all: bool) -> None:
        self.found: dict[tuple[str, str], Any] = {}
        self._loader = loader
        self._shapes = shapes
        self._knows_all = knows_all
        #: instances whose attributes may still come
        self._drafts: list[Any] = []

    def __call__(self, data: bytes) -> Any:
        if STACK_GLOBAL not in data:
            return pickle.loads(data)
        value = _Unpickler(BytesIO(data), self).load()
        while self._drafts:
            self._drafts.pop().__setstate__({})
        return value

    def find(self, module: str, name: str) -> Any:
        """What stands for the class or function that a pickle names."""
        found = self.found[module, name] = self._resolve(module, name)
        return found

    def _resolve(self, module: str, name: str) -> Any:
        path, loader = f"{module}:{name}", self._loader
        registered = self._registered(path)
        if registered is not None:
            return registered
        try:
            found = find_class(module, name)
        except (ImportError, AttributeError) as error:
            raise loader.gone(module, name, error) from error
        if module == CLOUDPICKLE:
            return script_class(name, found, self._script_class)
        return self._stand_in(found, self._shapes.get(path)) if isinstance(found, type) else found

    def _registered(self, path: str) -> type | None:
        """What stands for a class that is registered."""
        successor = self._loader.successor_of(path)
        if successor is None:
            return None
        self._loader.has_changed = True
        if not isinstance(successor, type):
            return function_stand_in(successor, self._drafts)
        fields = self._shapes.get(path)
        # Of a class of the user's script nothing is known.
        if fields is None and dataclasses.is_dataclass(successor):
            return dataclass_stand_in(successor, None, self._drafts, self._loader.no_default, self._on_change)
        return self._stand_in(successor, fields)

    def _script_class(self, name: str) -> type | None:
        place = (SCRIPT, name)
        if place not in self.found:
            self.found[place] = self._registered(f"{SCRIPT}:{name}")
        found: type | None = self.found[place]
        return found

    def _stand_in(self, cls: type, before: tuple[str, ...] | None) -> type:
        """The class itself where its instances need no check, else one that checks and converts them."""
        fields = class_fields(cls)
        if fields is None or before == fields or (before is None and self._knows_all):
            return cls
        if issubclass(cls, tuple):
            return cls if before is None else tuple_stand_in(cls, before, self._loader.no_default, self._on_change)
        return dataclass_stand_in(cls, before, self._drafts, self._loader.no_default, self._on_change)

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
