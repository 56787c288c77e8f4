"""Process table functions: the base class that users derive from, its contexts, and the hints of annotations.

A process table function (PTF) maps tables and values to a table. `signature` reads what its `eval` takes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Final, Generic, TypeVar

from penstock.base.errors import WrongTypeError, WrongValueError
from penstock.base.time import parse_duration
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DataType
from penstock.sql.user_functions.classes import UserDefinedFunction

T = TypeVar("T")
TimeT = TypeVar("TimeT")


class ArgumentTrait(Enum):
    """The kind of an argument of a process table function, and the features that a table argument supports.

    Examples:
        >>> from penstock.table.udf import ArgumentTrait
        >>> ArgumentTrait.OPTIONAL_PARTITION_BY.requires()
        [<ArgumentTrait.SET_SEMANTIC_TABLE: 'SET_SEMANTIC_TABLE'>]
    """

    #: a value
    SCALAR = "SCALAR"
    #: a table whose rows are processed each by itself
    ROW_SEMANTIC_TABLE = "ROW_SEMANTIC_TABLE"
    #: a table whose rows of one partition are processed together, with state and timers
    SET_SEMANTIC_TABLE = "SET_SEMANTIC_TABLE"
    #: PARTITION BY may be missing; all rows are then one partition
    OPTIONAL_PARTITION_BY = "OPTIONAL_PARTITION_BY"
    #: the result begins with all columns of the row, not only with the PARTITION BY columns
    PASS_COLUMNS_THROUGH = "PASS_COLUMNS_THROUGH"
    #: rows of the table may be updated and deleted
    SUPPORT_UPDATES = "SUPPORT_UPDATES"
    #: updates include the previous row
    REQUIRE_UPDATE_BEFORE = "REQUIRE_UPDATE_BEFORE"
    #: deletions include all columns of the row, not only its key
    REQUIRE_FULL_DELETE = "REQUIRE_FULL_DELETE"
    #: the call must have the argument `on_time`
    REQUIRE_ON_TIME = "REQUIRE_ON_TIME"

    def requires(self) -> list[ArgumentTrait]:
        """Return the traits without which this one makes no sense."""
        return [ArgumentTrait[name] for name in _REQUIRED_TRAITS.get(self.name, ())]


_REQUIRED_TRAITS: Final = {
    "OPTIONAL_PARTITION_BY": ("SET_SEMANTIC_TABLE",),
    "REQUIRE_UPDATE_BEFORE": ("SUPPORT_UPDATES",),
    "REQUIRE_FULL_DELETE": ("SUPPORT_UPDATES",),
}
ROOTS: Final = (ArgumentTrait.SCALAR, ArgumentTrait.ROW_SEMANTIC_TABLE, ArgumentTrait.SET_SEMANTIC_TABLE)


class ArgumentHint:
    """Declares an argument in an annotation: `Annotated[Row, ArgumentHint(ArgumentTrait.SET_SEMANTIC_TABLE)]`.

    Args:
        traits: traits, each by itself or in a list or set; none for a scalar argument.
        name: the name in calls; by default the parameter's own.
        type: the type of a scalar, or the ROW that a table must have.
        is_optional: whether a call may leave a scalar out, which is then None.

    Examples:
        >>> from penstock.table.udf import ArgumentHint, ArgumentTrait
        >>> ArgumentHint(ArgumentTrait.ROW_SEMANTIC_TABLE, name="input").name
        'input'
    """

    def __init__(self, *traits: Any, name: str | None = None, type: object = None, is_optional: bool = False) -> None:
        self.traits: tuple[ArgumentTrait, ...] = tuple(flatten(traits))
        self.name = name
        self.type = type
        self.is_optional = is_optional


def flatten(traits: Iterable[Any]) -> Iterable[ArgumentTrait]:
    """Yield the traits, each given by itself or in a collection."""
    for trait in traits:
        if isinstance(trait, ArgumentTrait):
            yield trait
        elif isinstance(trait, str) or not isinstance(trait, Iterable):
            raise WrongTypeError(f"a trait of an argument is an ArgumentTrait, not {trait!r}")
        else:
            yield from flatten(trait)


class StateHint:
    """Declares a state entry in an annotation: `Annotated[CountState, StateHint(ttl="1 day")]`.

    Args:
        type: the type of a `Row`, of the elements of a `ListView` (as ARRAY) or of a `MapView` (as MAP).
        ttl: how long the entry lives after its last write, such as `"1 day"`; `"0"` for no expiry. By default the
            option `table.exec.state.ttl` decides.
        name: the name of the entry; by default the parameter's own.

    Examples:
        >>> from penstock.table.udf import StateHint
        >>> StateHint(type="ROW<n BIGINT>", ttl="1 h").ttl_ms
        3600000
    """

    def __init__(self, type: object = None, ttl: object = None, name: str | None = None) -> None:
        self.type = type
        self.name = name
        self.ttl_ms = to_ttl_ms(ttl)


def to_ttl_ms(ttl: object) -> int | None:
    """Return a time to live in ms; None if none is given."""
    if ttl is None or isinstance(ttl, int):
        return ttl
    if isinstance(ttl, str):
        return int(parse_duration(ttl).to_millis())
    if hasattr(ttl, "to_millis"):
        return int(ttl.to_millis())
    if hasattr(ttl, "total_seconds"):
        return int(ttl.total_seconds() * 1000)
    raise WrongTypeError(f"a time to live is a text such as '1 day' or a duration, not {ttl!r}")


@dataclass(frozen=True)
class ColumnList:
    """The columns of a DESCRIPTOR, as a scalar argument.

    Examples:
        >>> from penstock.table.udf import ColumnList
        >>> ColumnList(("a", "b")).get_names()
        ['a', 'b']
    """

    names: tuple[str, ...]

    def get_names(self) -> list[str]:
        """Return the names of the columns."""
        return list(self.names)


class SortDirection(Enum):
    """The direction of a column in ORDER BY, and where its NULLs are."""

    ASC_NULLS_FIRST = "ASC_NULLS_FIRST"
    ASC_NULLS_LAST = "ASC_NULLS_LAST"
    DESC_NULLS_FIRST = "DESC_NULLS_FIRST"
    DESC_NULLS_LAST = "DESC_NULLS_LAST"

    def is_descending(self) -> bool:
        """Return whether greater values come first."""
        return self.name.startswith("DESC")

    def is_nulls_first(self) -> bool:
        """Return whether NULLs come before all values."""
        return self.name.endswith("FIRST")


@dataclass(frozen=True)
class TableSemantics:
    """A table argument of a call. Columns are counted from 0."""

    row_type: DataType
    partition: tuple[int, ...] = ()
    order: tuple[tuple[int, SortDirection], ...] = ()
    time: int = -1
    mode: Any = None

    def data_type(self) -> DataType:
        """Return the type of the rows, a ROW."""
        return self.row_type

    def partition_by_columns(self) -> list[int]:
        """Return the columns of PARTITION BY."""
        return list(self.partition)

    def order_by_columns(self) -> list[int]:
        """Return the columns of ORDER BY."""
        return [column for column, _ in self.order]

    def order_by_directions(self) -> list[SortDirection]:
        """Return the directions of the columns of ORDER BY."""
        return [direction for _, direction in self.order]

    def time_column(self) -> int:
        """Return the column that `on_time` names, or -1."""
        return self.time

    def changelog_mode(self) -> Any:
        """Return the kinds of changes that arrive, a `ChangelogMode`; None while the function is being planned."""
        return self.mode


class TimeContext(ABC, Generic[TimeT]):
    """Time and timers of the row or timer that is being processed.

    Times have the class that was passed to `Context.time_context`: `int` for milliseconds since 1970, `Instant`, or
    `datetime` without a time zone for UTC. Timers belong to the current partition.
    """

    @abstractmethod
    def time(self) -> TimeT | None:
        """Return the time of the row, which needs the argument `on_time`, or of the timer."""

    @abstractmethod
    def table_watermark(self) -> TimeT | None:
        """Return the watermark of the row's table; None before the first one."""

    @abstractmethod
    def current_watermark(self) -> TimeT | None:
        """Return the watermark of all tables; in `on_timer` the one that fires the timer; None before the first one."""

    @abstractmethod
    def register_on_time(self, name_or_time: str | TimeT, time: TimeT | None = None) -> None:
        """Register a timer: `register_on_time(time)`, or with a name, which replaces a timer of this name.

        It fires when the watermark reaches its time. A timer for a time that has passed fires at the next watermark.
        """

    @abstractmethod
    def clear_timer(self, name_or_time: str | TimeT) -> None:
        """Delete the timer with this name, or the unnamed timer for this time."""

    @abstractmethod
    def clear_all_timers(self) -> None:
        """Delete all timers of the partition."""


class Context(ABC):
    """The services of the framework for `eval`, its first parameter."""

    @abstractmethod
    def time_context(self, conversion_class: type[TimeT] = int) -> TimeContext[TimeT]:  # type: ignore[assignment]
        """Return time and timers, with times of this class: `int`, `Instant` or `datetime`."""

    @abstractmethod
    def table_semantics_for(self, arg_name: str) -> TableSemantics:
        """Return the table argument of a name."""

    @abstractmethod
    def clear_state(self, state_name: str) -> None:
        """Remove a state entry of the partition when the call has ended; writes of the call to it are lost."""

    @abstractmethod
    def clear_all_state(self) -> None:
        """Remove all state entries of the partition when the call has ended."""

    @abstractmethod
    def clear_all_timers(self) -> None:
        """Delete all timers of the partition."""

    @abstractmethod
    def clear_all(self) -> None:
        """Remove all state entries and delete all timers of the partition."""

    @abstractmethod
    def get_changelog_mode(self) -> Any:
        """Return the kinds of changes that the function may emit, a `ChangelogMode`."""


class OnTimerContext(Context):
    """The services of the framework for `on_timer`, its first parameter."""

    @abstractmethod
    def current_timer(self) -> str | None:
        """Return the name of the timer that fires; None for one without a name."""


@dataclass(frozen=True)
class ChangelogContext:
    """The input of `get_changelog_mode`: the changes of the call's tables, and the changes that its consumer needs."""

    modes: tuple[Any, ...]
    required: Any

    def get_table_changelog_mode(self, pos: int) -> Any:
        """Return the kinds of changes of the argument at this position, from 0; None for a scalar argument."""
        return self.modes[pos]

    def get_required_changelog_mode(self) -> Any:
        """Return the kinds of changes that the consumer of the result needs."""
        return self.required


@dataclass(frozen=True)
class CallContext:
    """The input of `get_result_type`: the tables, and the values of scalar arguments."""

    tables: Mapping[str, TableSemantics]
    values: Mapping[str, Any]

    def table_semantics_for(self, arg_name: str) -> TableSemantics:
        """Return the table argument of a name."""
        if arg_name not in self.tables:
            raise ValidationError(f"Unknown table argument: {arg_name}")
        return self.tables[arg_name]

    def get_argument_value(self, arg_name: str) -> Any:
        """Return the value of a scalar argument; None for NULL, and for a value that is known only while it runs."""
        return self.values.get(arg_name)


class ProcessTableFunction(UserDefinedFunction, Generic[T]):
    """Maps tables and values to a table, with state and timers. Flink: "Process Table Functions".

    A subclass defines `eval`, and `on_timer` if it registers timers. Both emit rows: they `yield` them, return a list
    of them, or call `collect`. A row is a `Row`, a tuple, or the value of the only column.

    The types of the result are the `result_type` of `udptf`, or the result of `get_result_type`, or the return
    annotation of `eval`. A function that updates rows overrides `get_changelog_mode`, and emits `Row.of_kind(…)`.

    Examples:
        >>> from collections.abc import Iterator
        >>> from typing import Annotated
        >>> from penstock.common import Row
        >>> from penstock.table import EnvironmentSettings, TableEnvironment
        >>> from penstock.table.expressions import col
        >>> from penstock.table.udf import ArgumentTrait, ProcessTableFunction, StateHint
        >>> class Seen:
        ...     count: int = 0
        >>> class Greeting(ProcessTableFunction):
        ...     def eval(
        ...         self, seen: Annotated[Seen, StateHint()], guest: Annotated[Row, ArgumentTrait.SET_SEMANTIC_TABLE]
        ...     ) -> Iterator[str]:
        ...         seen.count += 1
        ...         yield f"Hello {guest.name}, visit {seen.count}"
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> guests = t_env.from_elements([("Bob",), ("Bob",)], ["name"])
        >>> list(guests.partition_by(col("name")).process(Greeting).execute().collect())
        [<Row('Bob', 'Hello Bob, visit 1')>, <Row('Bob', 'Hello Bob, visit 2')>]
    """

    Context: ClassVar[type[Any]] = Context
    OnTimerContext: ClassVar[type[Any]] = OnTimerContext
    TimeContext: ClassVar[type[Any]] = TimeContext
    _emit: Callable[[Any], None] | None = None

    def collect(self, row: T) -> None:
        """Emit a row, within `eval` or `on_timer`."""
        if self._emit is None:
            raise WrongValueError("collect() is called outside of eval() and on_timer()")
        self._emit(row)

    def get_result_type(self, call: CallContext) -> Any:
        """Return the type of the result for this call, as `DataTypes` or text; None to use the declared one."""
        return None

    def get_changelog_mode(self, context: ChangelogContext) -> Any:
        """Return the kinds of changes that the function emits, a `ChangelogMode`; None for inserts only."""
        return None
