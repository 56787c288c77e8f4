"""Windows of the Table API: group windows and OVER windows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from penstock.base.errors import UnsupportedError, WrongTypeError
from penstock.sql.data.errors import ValidationError
from penstock.sql.expressions.builder import Operand
from penstock.sql.parser import syntax
from penstock.sql.parser.syntax import Bound, OrderItem, WindowSpecification
from penstock.table.expression import Expression

__all__ = [
    "GroupWindow",
    "Over",
    "OverWindow",
    "OverWindowPartitioned",
    "OverWindowPartitionedOrdered",
    "OverWindowPartitionedOrderedPreceding",
    "Session",
    "SessionWithGap",
    "SessionWithGapOnTime",
    "Slide",
    "SlideWithSize",
    "SlideWithSizeAndSlide",
    "SlideWithSizeAndSlideOnTime",
    "Tumble",
    "TumbleWithSize",
    "TumbleWithSizeOnTime",
]


@dataclass(frozen=True, slots=True)
class GroupWindow:
    """A window to group rows by. Created by `Tumble`, `Slide` and `Session`.

    `function`: its SQL name; `sizes`: its arguments, which are size; slide and size; or gap.
    """

    function: str
    sizes: tuple[syntax.Expression, ...]
    time: syntax.Reference
    name: str


def _node(value: Expression, subject: str) -> syntax.Expression:
    if not isinstance(value, Operand):
        raise WrongTypeError(
            f"{subject} must be an expression, such as lit(10).minutes or col('ts'), and not {value!r}"
        )
    return value._node


def _size(value: Expression) -> syntax.Expression:
    node = _node(value, "the size of a window")
    if isinstance(node, syntax.Call) and node.name == "$ROWS":
        raise UnsupportedError("windows of a number of rows are not supported: take a length of time")
    return node


def _time(value: Expression) -> syntax.Reference:
    node = _node(value, "the time of a window")
    if not isinstance(node, syntax.Reference):
        raise ValidationError(f"a window is on a column, a time attribute, and not on {value}")
    return node


class _OnTime:
    """A window without a name."""

    def __init__(self, function: str, sizes: tuple[syntax.Expression, ...], time: syntax.Reference) -> None:
        self._parts = function, sizes, time

    def alias(self, alias: str) -> GroupWindow:
        """Name the window, so that `group_by` and `select` can refer to it."""
        return GroupWindow(*self._parts, alias)


# --- windows of one length -------------------------------------------------------------------------------------------


class Tumble:
    """Tumbling windows: windows of fixed size, each starting where the previous one ends.

    Examples:
        >>> from penstock.table import EnvironmentSettings, TableEnvironment
        >>> from penstock.table.expressions import col, lit
        >>> from penstock.table.window import Tumble
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> orders = t_env.sql_query("SELECT drink, PROCTIME() AS paid FROM (VALUES ('tea')) AS orders (drink)")
        >>> windows = orders.window(Tumble.over(lit(1).minutes).on(col("paid")).alias("w"))
        >>> windows.group_by(col("w")).select(col("drink").count.alias("orders")).print_schema()
        (
          `orders` BIGINT NOT NULL
        )
    """

    @classmethod
    def over(cls, size: Expression) -> TumbleWithSize:
        """Set the size: `Tumble.over(lit(10).minutes)`."""
        return TumbleWithSize(_size(size))


class TumbleWithSize:
    """A tumbling window; `on` sets its time column."""

    def __init__(self, size: syntax.Expression) -> None:
        self._size = size

    def on(self, time_field: Expression) -> TumbleWithSizeOnTime:
        """Set the time column: a time attribute, or in batch any point in time."""
        return TumbleWithSizeOnTime("TUMBLE", (self._size,), _time(time_field))


class TumbleWithSizeOnTime(_OnTime):
    """A tumbling window; `alias` sets its name."""


# --- windows that overlap --------------------------------------------------------------------------------------------


class Slide:
    """Sliding windows: windows of fixed size that start at regular intervals, so that a row may be in several.

    Examples:
        >>> from penstock.table import EnvironmentSettings, TableEnvironment
        >>> from penstock.table.expressions import col, lit
        >>> from penstock.table.window import Slide
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> orders = t_env.sql_query("SELECT drink, PROCTIME() AS paid FROM (VALUES ('tea')) AS orders (drink)")
        >>> windows = orders.window(Slide.over(lit(2).minutes).every(lit(1).minutes).on(col("paid")).alias("w"))
        >>> windows.group_by(col("w")).select(col("drink").count.alias("orders")).print_schema()
        (
          `orders` BIGINT NOT NULL
        )
    """

    @classmethod
    def over(cls, size: Expression) -> SlideWithSize:
        """Set the size: `Slide.over(lit(10).minutes)`."""
        return SlideWithSize(_size(size))


class SlideWithSize:
    """A sliding window; `every` sets the interval between windows."""

    def __init__(self, size: syntax.Expression) -> None:
        self._size = size

    def every(self, slide: Expression) -> SlideWithSizeAndSlide:
        """Set the interval between the starts of two windows."""
        return SlideWithSizeAndSlide(self._size, _size(slide))


class SlideWithSizeAndSlide:
    """A sliding window; `on` sets its time column."""

    def __init__(self, size: syntax.Expression, slide: syntax.Expression) -> None:
        self._sizes = slide, size

    def on(self, time_field: Expression) -> SlideWithSizeAndSlideOnTime:
        """Set the time column: a time attribute, or in batch any point in time."""
        return SlideWithSizeAndSlideOnTime("HOP", self._sizes, _time(time_field))


class SlideWithSizeAndSlideOnTime(_OnTime):
    """A sliding window; `alias` sets its name."""


# --- windows with a gap after them -----------------------------------------------------------------------------------


class Session:
    """Session windows: windows that last as long as rows keep arriving, and end after a gap without rows.

    Examples:
        >>> from penstock.table import EnvironmentSettings, TableEnvironment
        >>> from penstock.table.expressions import col, lit
        >>> from penstock.table.window import Session
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> orders = t_env.sql_query("SELECT drink, PROCTIME() AS paid FROM (VALUES ('tea')) AS orders (drink)")
        >>> windows = orders.window(Session.with_gap(lit(1).minutes).on(col("paid")).alias("w"))
        >>> windows.group_by(col("w")).select(col("drink").count.alias("orders")).print_schema()
        (
          `orders` BIGINT NOT NULL
        )
    """

    @classmethod
    def with_gap(cls, gap: Expression) -> SessionWithGap:
        """Set the gap that ends a session: `Session.with_gap(lit(10).minutes)`."""
        return SessionWithGap(_size(gap))


class SessionWithGap:
    """A session window; `on` sets its time column."""

    def __init__(self, gap: syntax.Expression) -> None:
        self._gap = gap

    def on(self, time_field: Expression) -> SessionWithGapOnTime:
        """Set the time column: a time attribute, or in batch any point in time."""
        return SessionWithGapOnTime("SESSION", (self._gap,), _time(time_field))


class SessionWithGapOnTime(_OnTime):
    """A session window; `alias` sets its name."""


# --- windows over which aggregates go --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OverWindow:
    """A window of rows around each row, for aggregates. Created by `Over`."""

    name: str
    specification: WindowSpecification


class Over:
    """The entry point for defining an OVER window.

    Examples:
        >>> from penstock.table import EnvironmentSettings, TableEnvironment
        >>> from penstock.table.expressions import col, row_interval
        >>> from penstock.table.window import Over
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> orders = t_env.sql_query("SELECT cups, PROCTIME() AS paid FROM (VALUES (2), (3), (4)) AS t (cups)")
        >>> last_two = Over.order_by(col("paid")).preceding(row_interval(1)).alias("w")
        >>> totals = orders.over_window(last_two).select(col("cups").sum.over(col("w")).alias("total"))
        >>> totals.to_pandas()["total"].tolist()
        [2, 5, 7]
    """

    @classmethod
    def partition_by(cls, *partition_by: Expression) -> OverWindowPartitioned:
        """Partition the rows: only rows with equal values of these expressions share a window."""
        return OverWindowPartitioned(tuple(_node(key, "what a window is partitioned by") for key in partition_by))

    @classmethod
    def order_by(cls, order_by: Expression) -> OverWindowPartitionedOrdered:
        """Order the rows in a single partition."""
        return OverWindowPartitioned(()).order_by(order_by)


class OverWindowPartitioned:
    """A partitioned window; `order_by` sets the order of its rows."""

    def __init__(self, partition: tuple[syntax.Expression, ...]) -> None:
        self._partition = partition

    def order_by(self, order_by: Expression) -> OverWindowPartitionedOrdered:
        """Set the order of the rows: in a stream, by a time attribute."""
        item = OrderItem(_node(order_by, "what a window is ordered by"), order_by._is_descending is True)
        return OverWindowPartitionedOrdered(WindowSpecification(partition=self._partition, order=(item,)))


class OverWindowPartitionedOrdered:
    """A window from the first row of its partition to the current one, unless `preceding` sets another start."""

    def __init__(self, specification: WindowSpecification) -> None:
        self._specification = specification

    def preceding(self, preceding: Expression) -> OverWindowPartitionedOrderedPreceding:
        """Set the start of the window: a time or a number of rows before the current row, or `UNBOUNDED_ROW`."""
        unit, lower = _bound(preceding, "PRECEDING")
        begun = replace(self._specification, unit=unit, lower=lower, upper=Bound("CURRENT ROW"))
        return OverWindowPartitionedOrderedPreceding(begun)

    def alias(self, alias: str) -> OverWindow:
        """Name the window, so that `over` can refer to it."""
        return OverWindow(alias, self._specification)


class OverWindowPartitionedOrderedPreceding:
    """A window that ends at the current row, unless `following` sets another end."""

    def __init__(self, specification: WindowSpecification) -> None:
        self._specification = specification

    def following(self, following: Expression) -> OverWindowPartitionedOrderedPreceding:
        """Set the end of the window: a time or a number of rows after the current row, or the current row itself."""
        unit, upper = _bound(following, "FOLLOWING")
        if unit != self._specification.unit:
            raise ValidationError("the beginning and the end of a window must both count rows, or both time")
        return OverWindowPartitionedOrderedPreceding(replace(self._specification, upper=upper))

    def alias(self, alias: str) -> OverWindow:
        """Name the window, so that `over` can refer to it."""
        return OverWindow(alias, self._specification)


_ENDS: Final = {"CURRENT ROW": "ROWS", "CURRENT RANGE": "RANGE", "UNBOUNDED ROW": "ROWS", "UNBOUNDED RANGE": "RANGE"}


def _bound(value: Expression, direction: str) -> tuple[str, Bound]:
    """Return the unit of a bound, ROWS or time (RANGE), and its position."""
    node = _node(value, "an end of a window")
    if isinstance(node, syntax.Unit) and node.word in _ENDS:
        is_current = node.word.startswith("CURRENT")
        return _ENDS[node.word], Bound("CURRENT ROW") if is_current else Bound(direction)
    if isinstance(node, syntax.Call) and node.name == "$ROWS":
        return "ROWS", Bound(direction, node.operands[0])
    if not isinstance(node, syntax.IntervalLiteral):
        raise ValidationError(f"an end of a window must be a length of time, or row_interval(…), and not {value}")
    return "RANGE", Bound(direction, node)
