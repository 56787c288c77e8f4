"""The signature of a process table function: its arguments and its state entries, declared or annotated.

The parameters of `eval` are the signature: a context, state entries, arguments. A state entry has a `StateHint` in its
annotation, an argument that is a table an `ArgumentTrait` or an `ArgumentHint`; all others are scalar. `udptf` may
declare both without annotations. `read_signature` raises Flink's errors for declarations that make no sense.

A value state is stored as a `Row` whatever class the function sees, so that a savepoint can be read by the names of its
fields, and fields may be added and removed. Before a call the row becomes an object of the declared class, afterwards
the object becomes a row. An entry of which all fields are None is removed.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, TypeVar
from weakref import WeakKeyDictionary

from penstock.base.errors import UnsupportedError, WrongTypeError, WrongValueError
from penstock.base.types import Row
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import ArrayType, DataType, MapType, RowField, RowType
from penstock.sql.user_functions.annotations import MANY, infer_type, not_none, parse_declared_type, to_row_type
from penstock.sql.user_functions.classes import ListView, MapView
from penstock.sql.user_functions.definition import FUNC_TYPES, GENERAL, FunctionKind, UserFunction
from penstock.sql.user_functions.process import (
    ROOTS,
    ArgumentHint,
    ArgumentTrait,
    CallContext,
    ChangelogContext,
    ColumnList,
    Context,
    ProcessTableFunction,
    StateHint,
    flatten,
    to_ttl_ms,
)

ON_TIME: Final = "on_time"
UID: Final = "uid"
#: the column with the event time that `on_time` adds to the result
ROWTIME: Final = "rowtime"
#: the only column of a result that is no row
ONLY_COLUMN: Final = "EXPR$0"


@dataclass(frozen=True)
class ProcessTableFunctionArgument:
    """An argument, for `udptf(arguments=[…])`. Created by `table` and `scalar`.

    Examples:
        >>> from penstock.table.udf import ArgumentTrait, ProcessTableFunctionArgument
        >>> ProcessTableFunctionArgument.table("event", traits={ArgumentTrait.SET_SEMANTIC_TABLE}).is_table
        True
    """

    name: str
    traits: frozenset[ArgumentTrait]
    data_type: DataType | None = None
    is_optional: bool = False
    default: Any = None
    #: the class of the objects that a typed table's rows become; None for `Row`
    row_class: type | None = None
    #: whether the value is a `ColumnList`
    is_descriptor: bool = False
    #: the name of the parameter of `eval`
    parameter: str = field(default="", compare=False)

    @staticmethod
    def table(name: str, traits: Iterable[ArgumentTrait] = (), type: object = None) -> ProcessTableFunctionArgument:
        """Return a table argument, with row semantics unless the traits say otherwise."""
        given = frozenset(flatten(traits)) or frozenset({ArgumentTrait.ROW_SEMANTIC_TABLE})
        if not given & frozenset(ROOTS):
            given |= {ArgumentTrait.ROW_SEMANTIC_TABLE}
        row_type = None if type is None else parse_declared_type(type, "type")
        return ProcessTableFunctionArgument(name, given, row_type, parameter=name)

    @staticmethod
    def scalar(name: str, data_type: object, is_optional: bool = False) -> ProcessTableFunctionArgument:
        """Return a scalar argument."""
        kind = parse_declared_type(data_type, "data_type")
        return ProcessTableFunctionArgument(name, frozenset({ArgumentTrait.SCALAR}), kind, is_optional, parameter=name)

    @property
    def is_table(self) -> bool:
        """Whether it is a table."""
        return ArgumentTrait.SCALAR not in self.traits

    def has(self, trait: ArgumentTrait) -> bool:
        """Return whether the argument has a trait."""
        return trait in self.traits

    def __str__(self) -> str:
        if not self.is_table:
            kind = "DESCRIPTOR" if self.is_descriptor else str(self.data_type)
            return f"{self.name} => {kind}"
        traits = ", ".join(sorted(trait.name for trait in self.traits))
        return f"{self.name} => {'{TABLE' if self.data_type is None else f'{{{self.data_type}'}, {traits}}}"


VALUE, LIST, MAP = "value", "list", "map"


@dataclass(frozen=True)
class ProcessTableFunctionState:
    """A state entry, for `udptf(states=[…])`. Created by `value`, `list` and `map`.

    Examples:
        >>> from penstock.table.udf import ProcessTableFunctionState
        >>> ProcessTableFunctionState.value("seen", "ROW<n BIGINT>", ttl="1 day").ttl_ms
        86400000
    """

    name: str
    kind: str
    #: the fields of a value, in order
    fields: tuple[str, ...] = ()
    #: None if `table.exec.state.ttl` decides
    ttl_ms: int | None = None
    #: the class of a value; None for `Row`
    state_class: type | None = None

    @staticmethod
    def value(name: str, data_type: object, ttl: object = None) -> ProcessTableFunctionState:
        """Return an entry with one value: a `Row` of these fields."""
        kind = parse_declared_type(data_type, "data_type")
        if not isinstance(kind, RowType):
            raise ValidationError(f"State entries must use a mutable, composite data type. But was: {kind}")
        return ProcessTableFunctionState(name, VALUE, tuple(kind.field_names()), to_ttl_ms(ttl))

    @staticmethod
    def list(name: str, data_type: object = None, ttl: object = None) -> ProcessTableFunctionState:
        """Return an entry that is a `ListView`."""
        return ProcessTableFunctionState(name, LIST, (), to_ttl_ms(ttl))

    @staticmethod
    def map(name: str, data_type: object = None, ttl: object = None) -> ProcessTableFunctionState:
        """Return an entry that is a `MapView`."""
        return ProcessTableFunctionState(name, MAP, (), to_ttl_ms(ttl))


@dataclass(frozen=True)
class Signature:
    """The parameters of `eval` and `on_timer`.

    `has_on_timer`: whether there is an `on_timer`; `passes_timer`: whether it takes a context.
    """

    has_context: bool
    states: tuple[ProcessTableFunctionState, ...]
    arguments: tuple[ProcessTableFunctionArgument, ...]
    has_on_timer: bool = False
    passes_timer: bool = False

    def tables(self) -> list[ProcessTableFunctionArgument]:
        """Return the table arguments."""
        return [argument for argument in self.arguments if argument.is_table]

    def __str__(self) -> str:
        texts = [*map(str, self.arguments), f"{ON_TIME} => DESCRIPTOR", f"{UID} => STRING"]
        return f"({', '.join(texts)})"


class ProcessFunction(UserFunction):
    """The definition of a process table function.

    Args:
        name: see `UserFunction`.
        function: the object that runs.
        signature: its parameters.
        result_type: the declared type of the result; None if only a call decides.
        mode: the declared kinds of changes; None if the function decides.
        func_type: `general`, or `pandas` or `arrow` for many rows in one call.
        is_deterministic: see `UserFunction`.
    """

    def __init__(
        self,
        name: str,
        function: ProcessTableFunction[Any],
        signature: Signature,
        result_type: DataType | None,
        mode: Any = None,
        func_type: str = GENERAL,
        is_deterministic: bool = True,
    ) -> None:
        # The type of a result that only calls know is an empty row here.
        super().__init__(
            name, FunctionKind.PROCESS_TABLE, function, result_type or RowType(), None, func_type, is_deterministic
        )
        self.signature = signature
        self.declared_type = result_type
        self.mode = mode

    def called(self, name: str) -> ProcessFunction:
        """See `UserFunction`."""
        return ProcessFunction(
            name,
            self.function,
            self.signature,
            self.declared_type,
            self.mode,
            self.func_type,
            self.is_deterministic,
        )

    def infer_result_type(self, call: CallContext) -> DataType:
        """Return the type of the result. Raises `ValidationError` if nothing says it."""
        if self.declared_type is not None:
            return self.declared_type
        given = self.function.get_result_type(call)
        if given is None:
            raise ValidationError(
                f"function {self.name!r} says nowhere what its rows are: give udptf the result_type, override "
                "get_result_type, or annotate eval() with what it yields, such as Iterator[str]"
            )
        return _to_result_type(given)

    def find_changelog_mode(self, context: ChangelogContext) -> Any:
        """Return the kinds of changes of the result; None for inserts only."""
        return self.mode if self.mode is not None else self.function.get_changelog_mode(context)


def _to_result_type(declared: object) -> DataType:
    if isinstance(declared, list | tuple):
        return to_row_type(declared)
    if isinstance(declared, type):
        signature = _class_type(declared)
        if signature is not None:
            return signature
    return parse_declared_type(declared, "result_type")


def define_process(
    function: Any,
    arguments: Sequence[ProcessTableFunctionArgument] | None = None,
    states: Sequence[ProcessTableFunctionState] | None = None,
    result_type: object = None,
    changelog_mode: Any = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: str = GENERAL,
) -> ProcessFunction:
    """Define a process table function. See `penstock.table.udf.udptf`."""
    if isinstance(function, type) and issubclass(function, ProcessTableFunction):
        function = function()
    if not isinstance(function, ProcessTableFunction):
        raise WrongTypeError(
            f"Invalid function: a ProcessTableFunction is expected, its class or an object of it, not {function!r}"
        )
    if func_type not in FUNC_TYPES:
        raise WrongValueError(f"The func_type must be one of '{', '.join(FUNC_TYPES)}', got {func_type}.")
    title = name or type(function).__name__
    evaluate = getattr(function, "eval", None)
    if inspect.iscoroutinefunction(evaluate) or inspect.isasyncgenfunction(evaluate):
        raise UnsupportedError(
            f"process table function {title!r} is asynchronous, which is not supported: call a service in an "
            "asynchronous scalar or table function first, and process its rows"
        )
    signature = read_signature(function, title, arguments, states)
    if func_type != GENERAL:
        _check_frames(signature, func_type)
    known = _to_result_type(result_type) if result_type is not None else _annotated_result(function)
    return ProcessFunction(
        title,
        function,
        signature,
        known,
        changelog_mode,
        func_type,
        function.is_deterministic() if deterministic is None else deterministic,
    )


def _annotated_result(function: ProcessTableFunction[Any]) -> DataType | None:
    declared = getattr(type(function), "result_type", None)
    if declared is not None:
        return _to_result_type(declared)
    if type(function).get_result_type is not ProcessTableFunction.get_result_type:
        return None
    hint = _read_hints(function).get("return")
    hint = not_none(hint)
    if typing.get_origin(hint) in MANY:
        hint = typing.get_args(hint)[0]
    if hint in (None, type(None)):
        for base in getattr(type(function), "__orig_bases__", ()):
            if typing.get_origin(base) is ProcessTableFunction:
                (hint,) = typing.get_args(base)
    if hint is None or isinstance(hint, TypeVar):
        return None
    parts = typing.get_args(hint)
    if typing.get_origin(hint) is tuple:
        kinds = [infer_type(part) for part in parts]
        if None in kinds:
            return None
        return RowType([RowField(f"f{index}", kind) for index, kind in enumerate(kinds) if kind is not None], False)
    return infer_type(hint) or _class_type(hint)


def _class_type(hint: Any) -> RowType | None:
    """Return the fields of a class with annotations as a ROW; None for other classes."""
    if not isinstance(hint, type) or issubclass(hint, Row) or hint.__module__ == "builtins":
        return None
    fields = [(name, infer_type(kind) or _class_type(not_none(kind))) for name, kind in _field_hints(hint).items()]
    if not fields or any(kind is None for _, kind in fields):
        return None
    return RowType([RowField(name, kind) for name, kind in fields if kind is not None], False)


def _field_hints(kind: type) -> dict[str, Any]:
    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    except (NameError, TypeError):
        hints = {name: Any for base in reversed(kind.__mro__) for name in inspect.get_annotations(base)}
    return {name: hint for name, hint in hints.items() if typing.get_origin(hint) is not ClassVar}


#: the annotations of `eval` by class, because a class that was sent to another process loses the names in them
_HINTS: Final[WeakKeyDictionary[type, dict[str, Any]]] = WeakKeyDictionary()


def _read_hints(function: ProcessTableFunction[Any]) -> dict[str, Any]:
    """Return the annotations of `eval`. Raises `ValidationError` if they name what is not known."""
    kind = type(function)
    known = _HINTS.get(kind)
    if known is None:
        try:
            known = typing.get_type_hints(function.eval, include_extras=True)  # type: ignore[attr-defined]
        except (NameError, TypeError) as error:
            raise ValidationError(
                f"the annotations of eval() of {kind.__name__} cannot be read: {error}; define what they name at the "
                "top of a module, or give udptf the arguments and states"
            ) from error
        _HINTS[kind] = known
    return known


_STATE_NAME: Final = re.compile(r"[a-zA-Z_$][a-zA-Z_$0-9]*")


def read_signature(
    function: ProcessTableFunction[Any],
    title: str,
    arguments: Sequence[ProcessTableFunctionArgument] | None = None,
    states: Sequence[ProcessTableFunctionState] | None = None,
) -> Signature:
    """Return the signature of a function. Raises `ValidationError` for declarations that make no sense."""
    method = getattr(function, "eval", None)
    if method is None:
        raise ValidationError(f"function {title!r} has no method eval()")
    parameters = list(inspect.signature(method).parameters.values())
    if any(parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) for parameter in parameters):
        raise ValidationError("Process table functions require a non-overloaded, non-vararg, and static signature.")
    if arguments is not None or states is not None:
        signature = _declared_signature(title, parameters, arguments or (), states or ())
    else:
        signature = _annotated_signature(title, parameters, _read_hints(function))
    _check(signature)
    on_timer = getattr(function, "on_timer", None)
    if on_timer is None:
        return signature
    count = len(inspect.signature(on_timer).parameters) - len(signature.states)
    if count not in (0, 1):
        raise ValidationError(
            f"on_timer() of function {title!r} takes a context, which may be left out, and then all "
            f"{len(signature.states)} state entries of eval()"
        )
    return replace(signature, has_on_timer=True, passes_timer=count == 1)


def _declared_signature(
    title: str,
    parameters: Sequence[inspect.Parameter],
    arguments: Sequence[ProcessTableFunctionArgument],
    states: Sequence[ProcessTableFunctionState],
) -> Signature:
    declared = [*(state.name for state in states), *(argument.name for argument in arguments)]
    names = [parameter.name for parameter in parameters]
    has_context = len(names) == len(declared) + 1
    if names[int(has_context) :] != declared:
        raise ValidationError(
            f"eval() of function {title!r} must take the parameters ([ctx, ]{', '.join(declared)}), and takes "
            f"({', '.join(names)})"
        )
    return Signature(has_context, tuple(states), tuple(arguments))


def _annotated_signature(title: str, parameters: Sequence[inspect.Parameter], hints: Mapping[str, Any]) -> Signature:
    states: list[ProcessTableFunctionState] = []
    arguments: list[ProcessTableFunctionArgument] = []
    has_context = False
    for position, parameter in enumerate(parameters):
        hint: Any = hints.get(parameter.name)
        extras: list[Any]
        is_named_so = hint is None and parameter.name in ("ctx", "context")
        if position == 0 and (is_named_so or (isinstance(hint, type) and issubclass(hint, Context))):
            has_context = True
            continue
        plain, extras = hint, []
        if typing.get_origin(hint) is typing.Annotated:
            plain, *extras = typing.get_args(hint)
        state = next((StateHint() if extra is StateHint else extra for extra in extras if _is_state(extra)), None)
        if state is None and typing.get_origin(plain) in (ListView, MapView):
            state = StateHint()
        if state is not None:
            if arguments:
                raise ValidationError(
                    f"state entry '{parameter.name}' of function {title!r} must precede all arguments"
                )
            states.append(_read_state(parameter.name, plain, state))
        else:
            arguments.append(_read_argument(parameter, plain, extras, title))
    return Signature(has_context, tuple(states), tuple(arguments))


def _is_state(extra: Any) -> bool:
    return extra is StateHint or isinstance(extra, StateHint)


def _read_state(parameter: str, plain: Any, hint: StateHint) -> ProcessTableFunctionState:
    name = hint.name or parameter
    origin = typing.get_origin(plain) or plain
    declared = None if hint.type is None else parse_declared_type(hint.type, "type")
    if origin in (ListView, MapView):
        kind, expected = (LIST, ArrayType) if origin is ListView else (MAP, MapType)
        if declared is not None and not isinstance(declared, expected):
            raise ValidationError(f"the type of state entry '{name}' must be {expected.root}, not {declared}")
        return ProcessTableFunctionState(name, kind, (), hint.ttl_ms)
    if declared is not None:
        if not isinstance(declared, RowType):
            raise ValidationError(f"State entries must use a mutable, composite data type. But was: {declared}")
        own_class = origin if isinstance(origin, type) and origin is not Row else None
        return ProcessTableFunctionState(name, VALUE, tuple(declared.field_names()), hint.ttl_ms, own_class)
    if not isinstance(origin, type) or origin.__module__ == "builtins" or infer_type(origin) is not None:
        raise ValidationError(f"State entries must use a mutable, composite data type. But was: {plain}")
    if issubclass(origin, Row):
        raise ValidationError(
            f"state entry '{name}' is a Row of unknown fields: give StateHint its type, such as 'ROW<n BIGINT>'"
        )
    try:
        sample = origin()
    except TypeError as error:
        raise ValidationError(
            f"Class '{origin.__qualname__}' cannot be used as state because a default constructor is missing. State "
            "entries must provide an argument-less constructor so that all fields are mutable."
        ) from error
    fields = dict.fromkeys([*_field_hints(origin), *getattr(sample, "__dict__", ())])
    if not fields:
        raise ValidationError(f"class '{origin.__qualname__}' of state entry '{name}' has no fields")
    return ProcessTableFunctionState(name, VALUE, tuple(fields), hint.ttl_ms, origin)


def _read_argument(
    parameter: inspect.Parameter, plain: Any, extras: Sequence[Any], title: str
) -> ProcessTableFunctionArgument:
    hints = [extra for extra in extras if isinstance(extra, ArgumentHint)]
    traits = frozenset(flatten(extra for extra in extras if isinstance(extra, ArgumentTrait | set | frozenset)))
    traits |= {trait for hint in hints for trait in hint.traits}
    name = next((hint.name for hint in hints if hint.name), parameter.name)
    declared = next((hint.type for hint in hints if hint.type is not None), None)
    declared = declared or next((extra for extra in extras if isinstance(extra, DataType)), None)
    kind = None if declared is None else parse_declared_type(declared, "type")
    if traits and not traits & frozenset(ROOTS):
        raise ValidationError(
            f"Invalid argument traits for argument '{name}'. An argument must be declared as either scalar, table, or "
            "model."
        )
    has_default = parameter.default is not parameter.empty
    is_optional = has_default or any(hint.is_optional for hint in hints)
    if traits & {ArgumentTrait.ROW_SEMANTIC_TABLE, ArgumentTrait.SET_SEMANTIC_TABLE}:
        own_class = None
        plain = not_none(plain)
        if isinstance(plain, type) and not issubclass(plain, Row):
            own_class, kind = plain, kind or _class_type(plain)
            if kind is None:
                raise ValidationError(
                    f"Invalid conversion class '{plain.__name__}' for argument '{name}'. Polymorphic, untyped table "
                    "arguments must use a row class."
                )
        argument = ProcessTableFunctionArgument(name, traits, kind, is_optional, row_class=own_class)
    else:
        is_descriptor = not_none(plain) is ColumnList
        kind = kind or (None if is_descriptor else infer_type(plain))
        if kind is None and not is_descriptor:
            raise ValidationError(
                f"Data type missing for scalar argument '{name}' of function {title!r}: annotate it, as with int, or "
                "with Annotated[int, ArgumentHint(type='INT')]; a table needs one of the traits ROW_SEMANTIC_TABLE and "
                "SET_SEMANTIC_TABLE"
            )
        default = parameter.default if has_default else None
        argument = ProcessTableFunctionArgument(
            name, traits | {ArgumentTrait.SCALAR}, kind, is_optional, default, is_descriptor=is_descriptor
        )
    return replace(argument, parameter=parameter.name)


def _check(signature: Signature) -> None:
    """Raise `ValidationError` for arguments that do not go together."""
    names = [argument.name for argument in signature.arguments]
    if len(set(names)) < len(names):
        raise ValidationError("Argument name conflict, there are at least two argument names that are the same.")
    if {ON_TIME, UID} & set(names):
        raise ValidationError(
            "Function signature must not declare system arguments. Reserved argument names are: [on_time, uid]"
        )
    for state in signature.states:
        if not _STATE_NAME.fullmatch(state.name):
            raise ValidationError(
                "Invalid state names. A state entry must follow the pattern [a-zA-Z_$][a-zA-Z_$0-9]*. But found: "
                f"[{state.name}]"
            )
    for argument in signature.arguments:
        _check_traits(argument)
    tables = signature.tables()
    if len(tables) > 1 and not all(table.has(ArgumentTrait.SET_SEMANTIC_TABLE) for table in tables):
        raise ValidationError("All table arguments must use set semantics if multiple table arguments are declared.")
    if any(table.has(ArgumentTrait.PASS_COLUMNS_THROUGH) for table in tables):
        if any(table.has(ArgumentTrait.SUPPORT_UPDATES) for table in tables):
            raise ValidationError("Signatures with updating inputs must not pass columns through.")
        if len(tables) > 1:
            raise ValidationError("Pass-through columns are not supported if multiple table arguments are declared.")
    if signature.states and not any(table.has(ArgumentTrait.SET_SEMANTIC_TABLE) for table in tables):
        raise ValidationError(
            "state entries belong to a partition: a function with state takes a table with set semantics"
        )


_OF_ROWS: Final = (ArgumentTrait.PASS_COLUMNS_THROUGH, ArgumentTrait.SUPPORT_UPDATES, ArgumentTrait.REQUIRE_ON_TIME)


def _check_frames(signature: Signature, func_type: str) -> None:
    """Raise `ValidationError` for what only single rows have."""
    for table in signature.tables():
        traits = [trait.name for trait in _OF_ROWS if table.has(trait)]
        if traits or table.row_class is not None:
            what = ", ".join(traits) or f"the class {table.row_class.__name__}"  # type: ignore[union-attr]
            raise ValidationError(
                f"Table argument '{table.name}' of a function of func_type '{func_type}' takes many rows in one call, "
                f"which does not go with {what}"
            )
    if not signature.tables():
        raise ValidationError(f"a function of func_type '{func_type}' takes a table")


def _check_traits(argument: ProcessTableFunctionArgument) -> None:
    if len(argument.traits & frozenset(ROOTS)) != 1:
        raise ValidationError(
            f"Invalid argument traits for argument '{argument.name}'. An argument must be declared as either scalar, "
            "table, or model."
        )
    for trait in sorted(argument.traits, key=lambda it: it.name):
        needed = trait.requires() if trait in ROOTS or argument.is_table else _TABLES_ALONE
        for other in needed:
            if other not in argument.traits:
                raise ValidationError(
                    f"Invalid argument traits for argument '{argument.name}'. Trait {trait.name} requires {other.name}."
                )
    if argument.is_table and argument.is_optional:
        raise ValidationError("Table arguments must not be optional.")
    kind = argument.data_type
    if argument.is_table and kind is not None and not isinstance(kind, RowType):
        raise ValidationError(
            f"Invalid data type '{kind}' for table argument '{argument.name}'. Typed table arguments must use a "
            "composite type (i.e. row or structured type)."
        )
    if argument.row_class is not None and argument.has(ArgumentTrait.SUPPORT_UPDATES):
        raise ValidationError(
            f"Invalid data type '{kind}' for table argument '{argument.name}'. Table arguments that support updates "
            "must use a row type."
        )
    if argument.is_optional and argument.default is None and kind is not None and not kind.is_nullable:
        raise ValidationError(
            f"Invalid data type for optional argument '{argument.name}'. An optional argument has to accept null "
            "values."
        )


_TABLES_ALONE: Final = [ArgumentTrait.SET_SEMANTIC_TABLE]
