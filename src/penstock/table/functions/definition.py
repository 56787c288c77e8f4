"""The definition of an SQL function: its names, its operands, its result type, and its kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from typing import Final

from penstock.base.errors import WrongTimeError
from penstock.table.data.logical_types import DataType
from penstock.table.data.values import Kernel
from penstock.table.user_functions.opened import OpenFunctions


class _Unknown:
    """Marks the value of an operand that varies from row to row."""

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __reduce__(self) -> str:
        return "UNKNOWN"


#: The value of an operand that is not constant.
UNKNOWN: Final = _Unknown()


def _no_clock() -> int:
    raise WrongTimeError("this expression asks for the time, and nobody gave it a clock")


@dataclass(frozen=True, slots=True)
class Session:
    """The session as functions see it: its time zone, and `now`, which returns nanoseconds since 1970."""

    zone: tzinfo = UTC
    now: Callable[[], int] = _no_clock
    #: the watermark (ms since 1970) where the expression runs; None before the first one
    watermark: Callable[[], int | None] = lambda: None
    #: whether failing casts return NULL, as in old versions of Flink
    legacy_cast: bool = False
    current_catalog: str = "default_catalog"
    current_database: str = "default_database"
    #: the user-defined functions at run time; None while queries are planned
    functions: OpenFunctions | None = None


@dataclass(frozen=True, slots=True)
class Operands:
    """The operands of one call: their types and, where they are constant, their values."""

    types: tuple[DataType, ...]
    values: tuple[object, ...] = ()
    options: tuple[str, ...] = ()
    session: Session = field(default_factory=Session)
    _found: dict[object, DataType | None] = field(default_factory=dict, init=False, repr=False, compare=False)

    def once(self, rule: Callable[[Operands], DataType | None]) -> DataType | None:
        """Return the result of a rule for all operands together, computed only once."""
        if rule not in self._found:
            self._found[rule] = rule(self)
        return self._found[rule]

    def __len__(self) -> int:
        return len(self.types)

    def value(self, index: int) -> object:
        """Return the value of a constant operand, else `UNKNOWN`."""
        return self.values[index] if index < len(self.values) else UNKNOWN

    def any_nullable(self) -> bool:
        """Return whether any operand may be NULL."""
        return any(data_type.is_nullable for data_type in self.types)


#: checks one operand of a call; returns the type to cast it to, or None if it is rejected
Check = Callable[[Operands, int], DataType | None]


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand of a signature. `label`: its text in error messages."""

    label: str
    check: Check


@dataclass(frozen=True, slots=True)
class Signature:
    """The operands of a call, in order. The last `optional` ones may be omitted, the last `repeated` ones repeated."""

    operands: tuple[Operand, ...] = ()
    optional: int = 0
    repeated: int = 0

    def match(self, call: Operands) -> tuple[DataType, ...] | None:
        """Return the types that the operands are cast to, or None if they do not match."""
        expected = self._expected(len(call))
        if expected is None:
            return None
        types = [operand.check(call, index) for index, operand in enumerate(expected)]
        return None if None in types else tuple(data_type for data_type in types if data_type is not None)

    def takes(self, count: int) -> bool:
        """Return whether it accepts `count` operands."""
        return self._expected(count) is not None

    def _expected(self, count: int) -> tuple[Operand, ...] | None:
        least = len(self.operands) - self.optional
        if least <= count <= len(self.operands):
            return self.operands[:count]
        if self.repeated and count > len(self.operands):
            again, rest = divmod(count - len(self.operands), self.repeated)
            return None if rest else self.operands + self.operands[-self.repeated :] * again
        return None

    def __str__(self) -> str:
        labels = [operand.label for operand in self.operands]
        return f"({', '.join([*labels, '...'] if self.repeated else labels)})"


@dataclass(frozen=True, slots=True)
class Call:
    """One call, for creating its kernel: the operands after their implicit casts, and the result type."""

    operands: Operands
    result: DataType

    @property
    def types(self) -> tuple[DataType, ...]:
        """The types of the operands."""
        return self.operands.types

    @property
    def session(self) -> Session:
        """The session."""
        return self.operands.session

    @property
    def options(self) -> tuple[str, ...]:
        """The keywords of its own syntax."""
        return self.operands.options

    def value(self, index: int) -> object:
        """Return the value of a constant operand, else `UNKNOWN`."""
        return self.operands.value(index)


ResultRule = Callable[[Operands], DataType]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarFunction:
    """A scalar function, or an operator.

    `name`: the SQL name, in capitals. `python_name`: the method or function of the Table API, if it differs.
    """

    name: str
    signatures: tuple[Signature, ...]
    result: ResultRule
    #: creates the kernel of a call
    bind: Callable[[Call], Kernel]
    python_name: str = ""
    #: other names in SQL
    aliases: tuple[str, ...] = ()
    #: whether a call may fail for some values, or a function of its operands that decides it; such calls run only for
    #: the rows that need them
    can_fail: bool | Callable[[Operands], bool] = False
    is_deterministic: bool = True
    #: whether a call with constants becomes a constant at planning time
    is_folded: bool = True
    #: whether its value is constant within a batch query, and varies from row to row in a stream
    is_dynamic: bool = False
    #: the indexes of the operands that the kernel takes, if it has absorbed the constant ones
    evaluated_operands: Callable[[Operands], Sequence[int]] | None = None
    #: whether the kernel's first argument is the number of rows
    takes_rows: bool = False
    #: the section in the function reference
    section: str = ""
    #: its syntax, and a sentence about its result
    usage: str = ""
    summary: str = ""

    def may_fail(self, call: Operands) -> bool:
        """Return whether a call with these operands may fail."""
        return self.can_fail if isinstance(self.can_fail, bool) else self.can_fail(call)


def scalar(
    name: str,
    signatures: Signature | Sequence[Signature],
    result: ResultRule,
    bind: Callable[[Call], Kernel],
    summary: str = "",
    **more: object,
) -> ScalarFunction:
    """Define a function."""
    all_signatures = tuple(signatures) if isinstance(signatures, Sequence) else (signatures,)
    return ScalarFunction(name=name, signatures=all_signatures, result=result, bind=bind, summary=summary, **more)  # type: ignore[arg-type]
