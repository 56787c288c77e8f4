"""Loading of state with the current classes: instances whose fields were added or removed are converted (H4).

**Shapes** are the classes that the pickles of a state file name, with the fields that they had. They are a by-product
of unpickling captured state, which looks up every class once. A shape is the field names of a dataclass or NamedTuple,
or None for any other class. Classes that cloudpickle serializes by value, because they cannot be imported, are not
included.

**Stand-ins** replace changed classes while their instances are unpickled. Unpickling creates an instance with its
class's `__new__`, then passes it its attributes. A stand-in is a class whose `__new__`, and `__setstate__` where
needed, create an instance of today's class from the pickled data.

The attributes may never arrive: the pickle of an instance without attributes has none. So instances that wait for
attributes are kept in `drafts`, and the unpickling code passes an empty set of attributes to those that remain.

`StateLoader` loads the files of one state. A state file lists its classes, and the fields that they had. If none of
these have changed, which is the usual case, plain `pickle.loads` loads the values. Otherwise:

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
from importlib import import_module
from io import BytesIO
from typing import Any, Final

from penstock.base.typeinfo import class_fields
from penstock.state.errors import StateError, StateMigrationError
from penstock.state.keys import assign_key_group, is_plain, with_one_nan

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


_MISSING: Final = dataclasses.MISSING
_set: Final = object.__setattr__
NoDefault = Callable[[type, str], StateMigrationError]


def make_tuple_substitute(
    cls: type, before: tuple[str, ...], no_default: NoDefault, on_change: Callable[[], None]
) -> type:
    """Return a stand-in for a NamedTuple whose fields were `before`."""
    fields: tuple[str, ...] = getattr(cls, "_fields", ())
    defaults: dict[str, Any] = getattr(cls, "_field_defaults", {})
    position = {name: index for index, name in enumerate(before)}

    def make(_: type, *args: Any) -> Any:
        on_change()
        values = []
        for name in fields:
            if name in position:
                values.append(args[position[name]])
            elif name in defaults:
                values.append(defaults[name])
            else:
                raise no_default(cls, name)
        return tuple.__new__(cls, values)

    return type(cls.__name__, (), {"__new__": make})


def make_dataclass_substitute(
    cls: type,
    before: tuple[str, ...] | None,
    drafts: list[Any],
    no_default: NoDefault,
    on_change: Callable[[], None],
) -> type:
    """Return a stand-in for a dataclass whose fields were `before`, or are unknown.

    Returns the class itself if it customizes pickling.
    """
    is_positional = vars(cls).get("__getstate__") is getattr(dataclasses, "_dataclass_getstate", _MISSING)
    if not is_positional and (hasattr(cls, "__setstate__") or _reduces_itself(cls)):
        return cls
    fields = {field.name: field for field in dataclasses.fields(cls)}
    lost = set(before or ()) - set(fields)
    slots = {name for base in cls.__mro__ for name in getattr(base, "__slots__", ())}
    has_dict = cls.__dictoffset__ != 0

    def make(stand_in: type, *args: Any) -> Any:
        draft: Any = object.__new__(stand_in)
        drafts.append(draft)
        return draft

    def fill(draft: Any, state: Any) -> None:
        _discard(drafts, draft)
        for name, value in _attributes(state, before or tuple(fields)).items():
            if name not in lost and (has_dict or name in slots):
                _set(draft, name, value)
            else:
                on_change()
        _set(draft, "__class__", cls)
        for name, field in fields.items():
            # A class attribute of that name is the default, and belongs to no instance.
            if name not in getattr(draft, "__dict__", ()) and not (name in slots and hasattr(draft, name)):
                on_change()
                _set(draft, name, _default(cls, field, no_default))

    return type(cls.__name__, (cls,), {"__slots__": (), "__new__": make, "__setstate__": fill})


def make_function_substitute(function: Callable[..., Any], drafts: list[Any]) -> type:
    """Return a stand-in whose instances a function rebuilds, from the pickled arguments or else the attributes."""

    def make(stand_in: type, *args: Any, **keywords: Any) -> Any:
        if args or keywords:
            return function(*args, **keywords)
        draft: Any = object.__new__(stand_in)
        drafts.append(draft)
        return draft

    def become(draft: Any, state: Any) -> None:
        _discard(drafts, draft)
        instance = function(**_attributes(state, ()))
        # Other objects may already refer to the draft, so it becomes the new object instead of being replaced.
        _set(draft, "__class__", type(instance))
        _set(draft, "__dict__", vars(instance))

    return type("Successor", (), {"__new__": make, "__setstate__": become})


def script_class(name: str, function: Any, stand_in_for: Callable[[str], type | None]) -> Any:
    """Wrap the cloudpickle functions that rebuild classes of the user's script, so that they return stand-ins."""
    if name == "_make_skeleton_class":

        def make(metaclass: Any, class_name: str, *args: Any) -> Any:
            return stand_in_for(class_name) or function(metaclass, class_name, *args)

        return make
    if name == "_class_setstate":

        def fill(cls: type, state: Any) -> Any:
            # Do not apply the state of the script's class to the class that replaces it.
            return cls if stand_in_for(cls.__name__) is cls else function(cls, state)

        return fill
    return function


def _attributes(state: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Return an instance's pickled attributes by name, from its dictionary, its slots, or its fields in order."""
    if isinstance(state, list):
        return dict(zip(names, state, strict=False))
    attributes: dict[str, Any] = {}
    for part in state if isinstance(state, tuple) else (state,):
        attributes.update(part or {})
    return attributes


def _reduces_itself(cls: type) -> bool:
    own: Any = cls
    return own.__reduce_ex__ is not object.__reduce_ex__ or own.__reduce__ is not object.__reduce__


def _discard(drafts: list[Any], draft: Any) -> None:
    for index in range(len(drafts) - 1, -1, -1):
        if drafts[index] is draft:
            del drafts[index]
            return


def _default(cls: type, field: dataclasses.Field[Any], no_default: NoDefault) -> Any:
    if field.default is not _MISSING:
        return field.default
    if field.default_factory is not _MISSING:
        return field.default_factory()
    raise no_default(cls, field.name)


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
