"""What a function of SQL is: its names, which operands it takes, what type it gives, and how it runs on columns."""

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
    """Stands for the value of an operand that differs from row to row."""

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
    """What functions know of the session: its time zone, and `now`, which gives nanoseconds since 1970."""

    zone: tzinfo = UTC
    now: Callable[[], int] = _no_clock
    #: how far event time has come (ms since 1970) where the expression runs; None before there is a watermark
    watermark: Callable[[], int | None] = lambda: None
    #: whether casts that fail give NULL, as in old versions of Flink
    legacy_cast: bool = False
    current_catalog: str = "default_catalog"
    current_database: str = "default_database"
    #: the functions of the program, where these run; None where queries are planned
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
        """The result of a rule for all operands together. It is computed once, however often it is asked for."""
        if rule not in self._found:
            self._found[rule] = rule(self)
        return self._found[rule]

    def __len__(self) -> int:
        return len(self.types)

    def value(self, index: int) -> object:
        """The value of a constant operand, else `UNKNOWN`."""
        return self.values[index] if index < len(self.values) else UNKNOWN

    def any_nullable(self) -> bool:
        """Whether NULL is among the values of an operand."""
        return any(one.is_nullable for one in self.types)


#: checks one operand of a call; gives the type to which it is cast, or None where it is not taken
Check = Callable[[Operands, int], DataType | None]


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand of a signature. `label`: how the message of an error shows it."""

    label: str
    check: Check


@dataclass(frozen=True, slots=True)
class Signature:
    """The operands of a call, in order. Of the last ones `optional` may be left out, or `repeated` come again."""

    operands: tuple[Operand, ...] = ()
    optional: int = 0
    repeated: int = 0

    def match(self, call: Operands) -> tuple[DataType, ...] | None:
        """The types to which the operands are cast, or None when they are not taken."""
        expected = self._expected(len(call))
        if expected is None:
            return None
        found = [operand.check(call, index) for index, operand in enumerate(expected)]
        return None if None in found else tuple(one for one in found if one is not None)

    def takes(self, count: int) -> bool:
        """Whether it takes so many operands."""
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
        shown = [operand.label for operand in self.operands]
        return f"({', '.join([*shown, '...'] if self.repeated else shown)})"


@dataclass(frozen=True, slots=True)
class Call:
    """One call, as its kernel is made for it: operands after their implicit casts, and the type of the result."""

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
        """The words of its own syntax."""
        return self.operands.options

    def value(self, index: int) -> object:
        """The value of a constant operand, else `UNKNOWN`."""
        return self.operands.value(index)


ResultRule = Callable[[Operands], DataType]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarFunction:
    """A function of single values, or an operator.

    `name`: as SQL has it, in capitals. `python_name`: the method or function of the Table API, where it differs.
    """

    name: str
    signatures: tuple[Signature, ...]
    result: ResultRule
    #: makes the kernel of a call
    bind: Callable[[Call], Kernel]
    python_name: str = ""
    #: other names that SQL knows it by
    aliases: tuple[str, ...] = ()
    #: whether it may raise an error for some values, as a function of the operands where it depends on them; such
    #: calls run only for the rows that need them
    can_fail: bool | Callable[[Operands], bool] = False
    is_deterministic: bool = True
    #: whether a call of constants becomes a constant when the query is planned
    is_folded: bool = True
    #: whether its value is the same for all rows of a query in batch, and changes from row to row in a stream
    is_dynamic: bool = False
    #: the places of the operands that the kernel takes, where it has made something of the constant ones
    evaluated_operands: Callable[[Operands], Sequence[int]] | None = None
    #: whether the kernel's first argument is the number of rows
    takes_rows: bool = False
    #: the section of the page of functions
    section: str = ""
    #: how it is written, and a sentence that says what it gives
    usage: str = ""
    summary: str = ""

    def may_fail(self, call: Operands) -> bool:
        """Whether a call with these operands may raise an error."""
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
