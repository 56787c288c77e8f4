"""Results in the form that they had when a function emitted them, and the functions that may change them later.

An operator passes on its results in batches, but they count as if they were passed on one by one: a function may change
an object after it has emitted it, and nothing downstream sees that. So an operator examines each result when the
function emits it. It copies a mutable result, unless nothing else refers to the result or to a mutable object in it,
for example a record that the function has just made. It never copies a number, text, or a tuple of these.

CPython's reference counts show whether something else refers to an object. The counts of an object that nothing else
refers to are measured when this module is imported, by calls of the same form.

`split_side_outputs` separates the results into the main output and side outputs, `(OutputTag, value)`.

`ResultCheck`: examining each tuple costs a tenth of the time of a small function. So a function is trusted once it has
emitted only immutable results for a while and holds nothing mutable: it cannot change the results in a list that it has
returned. A generator still can, so the operator checks the class of each of its results. It examines a sample of all
results.

`holds_objects` finds functions that may hold an object, and so may change their results later. The code of a function
names everything that it can reach: global variables, attributes of modules and classes, and other functions. A function
may hold an object if one of these is mutable. The search includes functions and methods that the code names. The code
of the standard library and of installed packages counts as holding nothing.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dis import Instruction, get_instructions
from functools import partial
from itertools import islice, repeat
from sys import getrefcount
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GeneratorType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, Final

from penstock.base.copies import IMMUTABLE, attribute_values, detached, has_own_parts, is_immutable, is_plain_instance
from penstock.base.output_tag import OutputTag
from penstock.base.types import Row
from penstock.runtime.operators.base import FunctionOperator, Output
from penstock.runtime.operators.emitting import check_results
from penstock.runtime.records import Batch
from penstock.state.states import NO_KEY

#: The number of immutable results after which a function is trusted.
LOOKED_INTO_MIN: Final = 1024
#: The operator examines one of this many results of a trusted function.
STRIDE: Final = 64
_PACKAGE: Final = "penstock."
#: Classes of results that the operator does not examine if it trusts the function.
TRUSTED: Final = IMMUTABLE | {tuple}
#: Mutable classes of results, which need no closer look.
_OFTEN_CHANGED: Final = frozenset({list, dict, set, Row})


class ResultCheck:
    """Decides whether an operator examines all results of a function, or trusts the function.

    A function is trusted when it has emitted `LOOKED_INTO_MIN` immutable results, such as numbers, text and tuples of
    these, and when its attributes and a sample of its states are immutable. All values of a state have one type, so one
    value is enough.

    Args:
        operator: the operator, whose functions have been opened.
    """

    __slots__ = ("_functions", "_is_mixed", "_is_silent", "_looked_into", "_states")

    def __init__(self, operator: FunctionOperator) -> None:
        self._functions = operator.user_functions()
        self._states = operator.context.user_states
        self._is_mixed = False
        #: whether the function emitted nothing for the last batch, or for a part of it
        self._is_silent = False
        self._looked_into = 0

    def is_close(self) -> bool:
        """Return whether the operator examines all results of the next batch."""
        if not self._is_mixed and self._looked_into >= LOOKED_INTO_MIN:
            values = [value for state in self._states.values() for value in state.sample()]
            values += [value for function in self._functions for value in attribute_values(function) or ()]
            self._is_mixed = not all(map(_is_no_holder, values))
            return self._is_mixed
        return True

    def is_undecided(self) -> bool:
        """Return whether the operator will trust the function after some more results of the same kind."""
        return not self._is_mixed and not self._is_silent and self._looked_into < LOOKED_INTO_MIN

    def note(self, results: Results, begin: int = 0) -> None:
        """Note the results of a batch, or of a part of one; they start at index `begin`."""
        if results.has_mixed:
            self._is_mixed = True
        elif self._looked_into < LOOKED_INTO_MIN:
            self._looked_into += len(results.values) - begin
            self._is_silent = len(results.values) == begin
        elif not all(map(is_immutable, results.values[begin::STRIDE])):
            self._is_mixed = True


def can_never_change(value: Any) -> bool:
    """Return whether a value of a class outside `IMMUTABLE` is immutable: a tuple in a tuple, a member of an enum."""
    return value.__class__ not in _OFTEN_CHANGED and is_immutable(value)


def _is_no_holder(value: Any) -> bool:
    """Return whether a value is immutable, or is an object of the runtime, such as a state."""
    return is_immutable(value) or (value.__class__.__module__.startswith(_PACKAGE) and value.__class__ is not Row)


def is_side_output(result: Any) -> bool:
    """Return whether a result is `(OutputTag, value)`, PyFlink's way to write to a side output."""
    return result.__class__ is tuple and len(result) == 2 and result[0].__class__ is OutputTag


def split_side_outputs(output: Output, results: list[Any], timestamps: list[int] | None) -> Batch:
    """Emit the side outputs among `results`; returns the rest as a batch for the main output."""
    for result in results:
        if result.__class__ is tuple and result and result[0].__class__ is OutputTag:
            break
    else:
        return Batch(results, timestamps)
    main: tuple[list[Any], list[int]] = ([], [])
    sides: dict[str, tuple[list[Any], list[int]]] = {}
    for index, result in enumerate(results):
        values, times = main
        if is_side_output(result):
            tag, result = result
            values, times = sides.setdefault(tag.tag_id, ([], []))
        values.append(result)
        if timestamps is not None:
            times.append(timestamps[index])
    for tag_id, (values, times) in sides.items():
        output.collect_side(tag_id, Batch(values, None if timestamps is None else times))
    return Batch(main[0], None if timestamps is None else main[1])


class Results:
    """The results of a batch.

    Attributes:
        values: the results; the ones for side outputs have their tags.
        times: their timestamps (ms); empty if they have none.
        has_mixed: whether a result, or a part of a tuple, is mutable.
    """

    __slots__ = ("has_mixed", "times", "values")

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.times: list[int] = []
        self.has_mixed = False

    def take(self, yielded: Iterable[Any]) -> None:
        """Take the results of one call, without their timestamps; the caller must have `yielded` in a variable."""
        append = self.values.append
        for result in yielded:
            if result.__class__ is tuple:
                for part in result:
                    if part.__class__ not in IMMUTABLE and not can_never_change(part):
                        part, self.has_mixed = None, True
                        result = as_emitted(result, yielded, 1, 1)
                        break
            elif result.__class__ not in IMMUTABLE and not can_never_change(result):
                self.has_mixed = True
                result = as_emitted(result, yielded, 0, 1)
            append(result)

    def add_times(self, timestamp: int) -> None:
        """Give a timestamp to the results that have none yet."""
        missing = len(self.values) - len(self.times)
        if missing == 1:
            self.times.append(timestamp)
        else:
            self.times.extend(repeat(timestamp, missing))

    def emit(self, output: Output, is_timed: bool) -> None:
        """Emit the results, with their timestamps if they have any."""
        out = split_side_outputs(output, self.values, self.times if is_timed else None)
        if len(out):
            output.collect(out)


def process_each(
    operator: FunctionOperator,
    batch: Batch,
    handle: Callable[[Any, Any], Iterable[Any] | None],
    ctx: Any,
    check: ResultCheck,
    keys: Sequence[Any] | None = None,
) -> None:
    """Call `handle` for every record, with its timestamp in `ctx` and its key as the current one; emit the results.

    Args:
        operator: the operator, whose function is called.
        batch: the records.
        handle: called with a record and `ctx`, returns the results: see `check_results`.
        ctx: receives `element_timestamp`.
        check: decides whether the function's results are examined.
        keys: the key of each record; None if the operator has no keys.

    Raises:
        UserCodeError: if the function raises.
    """
    results, keyed, timestamps = Results(), operator.context.keyed, batch.timestamps
    of_keys = repeat(NO_KEY) if keys is None else keys
    rows: Iterable[Any]
    if timestamps is None:
        ctx.element_timestamp = None
        take, rows = _take_untimed, zip(batch.values, of_keys)  # noqa: B905 - repeat has no end
    else:
        take, rows = _take_timed, zip(batch.values, timestamps, of_keys)  # noqa: B905
    left = len(batch.values)
    try:
        # If a function may soon be trusted, its results need not be examined for the rest of a long batch.
        while check.is_undecided() and left > LOOKED_INTO_MIN:
            begin = len(results.values)
            take(operator, islice(rows, LOOKED_INTO_MIN), handle, ctx, results, is_close=True)
            check.note(results, begin)
            left -= LOOKED_INTO_MIN
        begin = len(results.values)
        take(operator, rows, handle, ctx, results, check.is_close())
    finally:
        keyed.current_key = NO_KEY
    check.note(results, begin)
    results.emit(operator.output, timestamps is not None)


def _take_untimed(
    operator: FunctionOperator, rows: Iterable[Any], handle: Any, ctx: Any, results: Results, is_close: bool
) -> None:
    """Take the results for records without timestamps."""
    keyed, append, extend, take = operator.context.keyed, results.values.append, results.values.extend, results.take
    record = None
    try:
        for record, keyed.current_key in rows:
            yielded = handle(record, ctx)
            if yielded is None:
                continue
            if yielded.__class__ is list and not is_close:
                extend(yielded)
                continue
            if yielded.__class__ is not list and yielded.__class__ is not GeneratorType:
                yielded = check_results(yielded, handle)
            if is_close:
                take(yielded)
                continue
            for result in yielded:
                if result.__class__ not in TRUSTED and not can_never_change(result):
                    results.has_mixed = True
                    result = as_emitted(result, yielded)
                append(result)
    except Exception as error:
        raise operator.failed(record) from error


def _take_timed(
    operator: FunctionOperator, rows: Iterable[Any], handle: Any, ctx: Any, results: Results, is_close: bool
) -> None:
    """Take the results for records with timestamps."""
    keyed, values, times, take = operator.context.keyed, results.values, results.times, results.take
    append, extend, add_time, record = values.append, values.extend, times.append, None
    try:
        for record, timestamp, keyed.current_key in rows:
            ctx.element_timestamp = timestamp
            yielded = handle(record, ctx)
            if yielded is None:
                continue
            if yielded.__class__ is list and not is_close:
                extend(yielded)
                for _ in yielded:
                    add_time(timestamp)
                continue
            if yielded.__class__ is not list and yielded.__class__ is not GeneratorType:
                yielded = check_results(yielded, handle)
            if is_close:
                take(yielded)
                results.add_times(timestamp)
                continue
            for result in yielded:
                if result.__class__ not in TRUSTED and not can_never_change(result):
                    results.has_mixed = True
                    result = as_emitted(result, yielded)
                append(result)
                add_time(timestamp)
    except Exception as error:
        raise operator.failed(record) from error


# --- objects that nothing else refers to ------------------------------------------------------------------------------


def as_emitted(result: Any, yielded: Iterable[Any], references: int = 0, of_yielded: int = 0) -> Any:
    """Return a mutable result in its current form: a copy, unless nothing else refers to it or to its mutable parts.

    Call this inside `for result in yielded`, where both are variables of the caller.

    Args:
        result: the result.
        yielded: the list, generator or iterator that it comes from.
        references: how many more references to the result the caller has.
        of_yielded: the same for `yielded`.
    """
    # A list that nothing else refers to is dropped along with its references.
    is_own_list = yielded.__class__ is list and getrefcount(yielded) <= _LIST_REFERENCES + of_yielded
    count = getrefcount(result) - references
    if count <= (_ITEM_REFERENCES if is_own_list else _RESULT_REFERENCES) and has_own_parts(result):
        return result
    return detached(result)


def _count_references(result: Any, yielded: Iterable[Any], references: int = 0, of_yielded: int = 0) -> tuple[int, int]:
    """Measure reference counts in a call of the same form as `as_emitted`."""
    return getrefcount(result), getrefcount(yielded)


def _measured() -> tuple[int, int, int]:
    yielded: Iterable[Any] = (object() for _ in range(1))
    for result in yielded:
        of_result, _ = _count_references(result, yielded)
    yielded = [object()]
    for result in yielded:
        of_item, of_list = _count_references(result, yielded)
    return of_result, of_item, of_list


#: The reference counts of a generator's result, of a list's item, and of the list, if nothing else refers to them.
_RESULT_REFERENCES, _ITEM_REFERENCES, _LIST_REFERENCES = _measured()


# --- results of a map -------------------------------------------------------------------------------------------------


def with_copies(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap the function of a map or a source, so that it copies its mutable results."""

    def call(record: Any) -> Any:
        result = function(record)
        if result.__class__ is tuple:
            for part in result:
                if part.__class__ not in IMMUTABLE:
                    return detached(result)
            return result
        return result if result.__class__ in IMMUTABLE else detached(result)

    return call


_RUNTIME: Final = "penstock"
#: Names of functions that can reach every variable.
_REACH_ALL: Final = frozenset({"__import__", "eval", "exec", "globals", "import_module", "modules", "setattr"})
#: Names of functions and attributes that let code reach an attribute by a string.
_REACH_BY_TEXT: Final = frozenset({"__dict__", "attrgetter", "getattr", "methodcaller", "vars"})
_ATTRIBUTE_READS: Final = ("LOAD_ATTR", "LOAD_METHOD")
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
#: Types of class attributes that are written in C or are slots.
_DESCRIPTORS: Final = GetSetDescriptorType | MemberDescriptorType | MethodDescriptorType | WrapperDescriptorType
#: Methods that create an instance.
_MAKING_METHODS: Final = frozenset({"__init__", "__new__", "__post_init__", "__setstate__"})
#: Methods that return text; they are large in dataclasses.
_TEXT_METHODS: Final = frozenset({"__repr__", "__str__", "__format__"})


def holds_objects(function: Any) -> bool:
    """Return whether a function may hold an object of its own, and so may change its results later.

    It may if it has attributes or assigns them, or if it is a `functools.partial`. It may if its code names something
    mutable: a variable of an enclosing function, a default, a global variable, or an attribute of a module or a class.
    Functions that its code names are examined in the same way.
    """
    return _Search().holds_mutable(function)


class _Names:
    """The names in the code of a function, and in the functions that are defined in it.

    Attributes:
        variables: the global variables.
        attributes: the attributes, of any objects.
        imported: the modules that it imports.
        bare: the global variables that it uses in other ways than to read an attribute.
        assigned: variables of an enclosing function that it assigns.
        stores_own: whether it assigns an attribute of its first parameter.
        stores: whether it assigns another attribute, or a global variable.
    """

    def __init__(self, code: CodeType) -> None:
        self.variables: set[str] = set()
        self.attributes: set[str] = set()
        self.imported: set[str] = set()
        self.bare: set[str] = set()
        self.assigned: set[str] = set()
        self.stores_own = self.stores = False
        self._texts: set[str] = set()
        self._read(code, code.co_varnames[0] if code.co_argcount else None)
        if not _REACH_BY_TEXT.isdisjoint(self.variables | self.attributes):
            self.attributes |= self._texts

    @property
    def reaches_all(self) -> bool:
        """Whether it can reach every global variable."""
        return not _REACH_ALL.isdisjoint(self.variables | self.attributes)

    def _read(self, code: CodeType, own: str | None) -> None:
        steps = [step for step in get_instructions(code) if step.opname != "EXTENDED_ARG"]
        for number, step in enumerate(steps):
            following = steps[number + 1].opname if number + 1 < len(steps) else ""
            self._read_step(step, steps[number - 1], following, own)
            if step.opname == "IMPORT_NAME":  # the full name of a relative import is not known here
                self.imported.add("." if steps[number - 2].argval else step.argval)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                # The first parameter of an inner function is a different object.
                self._read(constant, None)
            elif isinstance(constant, str):
                self._texts.add(constant)

    def _read_step(self, step: Instruction, before: Instruction, following: str, own: str | None) -> None:
        name, argument = step.opname, step.argval
        if name in {"LOAD_GLOBAL", "LOAD_NAME"}:
            self.variables.add(argument)
            if following not in _ATTRIBUTE_READS:
                self.bare.add(argument)
        elif name in {*_ATTRIBUTE_READS, "LOAD_SUPER_ATTR", "IMPORT_FROM"}:
            self.attributes.add(argument)
        elif name == "STORE_DEREF":
            self.assigned.add(argument)
        elif name == "STORE_ATTR":
            loaded = before.argval[-1] if isinstance(before.argval, tuple) else before.argval
            is_own = own is not None and loaded == own and before.opname.startswith(("LOAD_FAST", "LOAD_DEREF"))
            self.stores_own |= is_own
            self.stores |= not is_own
        elif name == "STORE_GLOBAL":
            self.stores = True


class _Search:
    """A search of a function and of everything that it names.

    A function may get an instance of a class from another function. So the search looks for every attribute that any of
    the functions names, in every class that any of them names.
    """

    def __init__(self) -> None:
        self._seen: set[tuple[int, bool]] = set()
        self._attributes: set[str] = set()
        #: each class, and whether the functions create its instances
        self._classes: dict[tuple[type, bool], None] = {}

    def holds_mutable(self, function: Any) -> bool:
        """Return whether a function holds a mutable object."""
        if self._is_callable_held(function):
            return True
        looked_for: set[str] = set()
        looked_into = 0
        # Each pass may find more classes and names.
        while looked_for != self._attributes or looked_into != len(self._classes):
            looked_for, looked_into = set(self._attributes), len(self._classes)
            if any(self._class_holds(cls, is_made) for cls, is_made in list(self._classes)):
                return True
        return False

    def _is_callable_held(self, function: Any) -> bool:
        if isinstance(function, FunctionType | BuiltinFunctionType | type | partial | _DESCRIPTORS):
            return self._is_held(function)
        if isinstance(function, MethodType):
            owner, code = function.__self__, function.__func__
        else:
            owner, code = function, type(function).__call__
        if isinstance(owner, type):
            return self._is_held(function)
        if self._has_attributes(owner):
            return True
        cls = type(owner)
        self._classes[cls, False] = None
        return isinstance(code, FunctionType) and self._function_holds(code, False)

    def _is_held(self, value: Any, is_made: bool = False) -> bool:
        """Return whether a value is mutable, or holds something mutable.

        Args:
            value: a value that a function names.
            is_made: whether it is a method of a class whose instances the functions create. Such a method may assign
                attributes of its instance.
        """
        if isinstance(value, FunctionType):
            return self._function_holds(value, is_made)
        if isinstance(value, MethodType):
            return self._is_held(value.__self__) or self._is_held(value.__func__)
        if isinstance(value, BuiltinFunctionType):  # often a method, such as `numbers.append`
            return not isinstance(value.__self__, ModuleType | type | None) and self._is_held(value.__self__)
        if isinstance(value, type):
            self._classes[value, True] = None
            return False
        if isinstance(value, ModuleType | _DESCRIPTORS):
            return False
        if isinstance(value, staticmethod | classmethod):
            return self._is_held(value.__func__)
        if isinstance(value, property):
            return any(self._is_held(each, is_made) for each in (value.fget, value.fset) if each is not None)
        if isinstance(value, tuple) and any(map(self._is_held, value)):
            return True
        is_constant = is_plain_instance(value) and not vars(value) and _is_installed(type(value).__module__)
        return not is_constant and not is_immutable(value)

    def _function_holds(self, function: FunctionType, is_made: bool) -> bool:
        key = (id(function), is_made)
        if key in self._seen:
            return False
        self._seen.add(key)
        enclosed = list(_read_cells(function.__closure__ or ()))
        if _is_installed(function.__module__):
            return any(map(self._is_held, enclosed))  # may be a user-defined function in a decorator
        names, scope = _Names(function.__code__), function.__globals__
        if function.__dict__ or names.stores or names.reaches_all or (names.stores_own and not is_made):
            return True
        if not names.assigned.isdisjoint(function.__code__.co_freevars):
            return True
        self._attributes |= names.attributes
        used = [scope[name] for name in names.variables if name in scope]
        used += (*enclosed, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        if any(map(self._is_held, used)):
            return True
        if any(_is_module_of_program(scope.get(name)) for name in names.bare):
            return True
        modules = [value for value in used if _is_module_of_program(value)]
        for name in names.imported:
            if not _is_installed(name):
                if name not in sys.modules:
                    return True  # its contents are not known yet
                modules += [sys.modules[part] for part in _with_parents(name)]
        return any(self._is_held(value) for value in _find_named_values(modules, names.attributes))

    def _has_attributes(self, owner: Any) -> bool:
        """Return whether an object has attributes of its own that its methods may change."""
        values = attribute_values(owner)
        if values is None:
            return True
        if values:
            # The runtime's own functions do not assign attributes later.
            return not _is_of_runtime(type(owner).__module__) or any(map(self._is_held, values))
        slots = (name for base in type(owner).__mro__ for name, value in vars(base).items() if _is_slot(value))
        return any(hasattr(owner, name) for name in slots)

    def _class_holds(self, cls: type, is_made: bool) -> bool:
        metaclass: type = type(cls)
        for base in (*cls.__mro__, *metaclass.__mro__):
            if _is_installed(base.__module__):
                continue
            is_instance_method = is_made and base in cls.__mro__
            for name, value in vars(base).items():
                is_named = name in self._attributes or (
                    _is_called_unnamed(name, is_instance_method) and isinstance(value, FunctionType | staticmethod)
                )
                if is_named and self._is_held(value, is_instance_method):
                    return True
        return False


def _is_called_unnamed(name: str, is_made: bool) -> bool:
    return name.startswith("__") and name not in _TEXT_METHODS and (is_made or name not in _MAKING_METHODS)


def _is_slot(value: Any) -> bool:
    return isinstance(value, MemberDescriptorType)


def _read_cells(cells: Iterable[CellType]) -> Iterator[Any]:
    for cell in cells:
        with suppress(ValueError):  # an empty cell
            yield cell.cell_contents


def _find_named_values(modules: list[ModuleType], names: set[str]) -> Iterator[Any]:
    """Yield the values with these names in modules, and in the user's modules that these names refer to."""
    seen: set[int] = set()
    while modules:
        module = modules.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        for value in [value for name, value in vars(module).items() if name in names]:
            if _is_module_of_program(value):
                modules.append(value)
            else:
                yield value


def _with_parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[:length]) for length in range(1, len(parts) + 1))


def _is_module_of_program(value: Any) -> bool:
    return isinstance(value, ModuleType) and not _is_installed(value.__name__)


def _is_of_runtime(name: str) -> bool:
    return name.partition(".")[0] == _RUNTIME


def _is_installed(name: str | None) -> bool:
    """Return whether a module belongs to the standard library, an installed package, or the runtime."""
    if not name:
        return False
    if name.partition(".")[0] in sys.stdlib_module_names or _is_of_runtime(name):
        return True
    file = getattr(sys.modules.get(name), "__file__", None)
    return file is not None and not _INSTALLED.isdisjoint(re.split(r"[\\/]", file))
