"""Windows of the Table API: those that rows are grouped by, and those over which aggregates go."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from penstock.base.errors import UnsupportedError, WrongTypeError
from penstock.table.data.errors import ValidationError
from penstock.table.expression import Expression
from penstock.table.methods.operand import Operand
from penstock.table.sql import syntax
from penstock.table.sql.syntax import Bound, OrderItem, WindowSpecification

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
    """A window that rows are grouped by. Made by `Tumble`, `Slide` and `Session`.

    `function`: what SQL calls it; `sizes` are its arguments: size; slide and size; gap.
    """

    function: str
    sizes: tuple[syntax.Expression, ...]
    time: syntax.Reference
    name: str


def _node(value: Expression, what: str) -> syntax.Expression:
    if not isinstance(value, Operand):
        raise WrongTypeError(f"{what} must be an expression, such as lit(10).minutes or col('ts'), and not {value!r}")
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
        """The window under a name, by which `group_by` and `select` know it."""
        return GroupWindow(*self._parts, alias)


# --- windows of one length -------------------------------------------------------------------------------------------


class Tumble:
    """Windows of one length, each of which begins where the one before ends."""

    @classmethod
    def over(cls, size: Expression) -> TumbleWithSize:
        """Windows of this length: `Tumble.over(lit(10).minutes)`."""
        return TumbleWithSize(_size(size))


class TumbleWithSize:
    """A tumbling window; `on` says on which time."""

    def __init__(self, size: syntax.Expression) -> None:
        self._size = size

    def on(self, time_field: Expression) -> TumbleWithSizeOnTime:
        """The column that has the time: a time attribute, or in batch any point in time."""
        return TumbleWithSizeOnTime("TUMBLE", (self._size,), _time(time_field))


class TumbleWithSizeOnTime(_OnTime):
    """A tumbling window; `alias` gives it a name."""


# --- windows that overlap --------------------------------------------------------------------------------------------


class Slide:
    """Windows of one length that begin at regular times, so that a row may be in several."""

    @classmethod
    def over(cls, size: Expression) -> SlideWithSize:
        """Windows of this length: `Slide.over(lit(10).minutes)`."""
        return SlideWithSize(_size(size))


class SlideWithSize:
    """A sliding window; `every` says how far apart they begin."""

    def __init__(self, size: syntax.Expression) -> None:
        self._size = size

    def every(self, slide: Expression) -> SlideWithSizeAndSlide:
        """The time from the beginning of one window to that of the next."""
        return SlideWithSizeAndSlide(self._size, _size(slide))


class SlideWithSizeAndSlide:
    """A sliding window; `on` says on which time."""

    def __init__(self, size: syntax.Expression, slide: syntax.Expression) -> None:
        self._sizes = slide, size

    def on(self, time_field: Expression) -> SlideWithSizeAndSlideOnTime:
        """The column that has the time: a time attribute, or in batch any point in time."""
        return SlideWithSizeAndSlideOnTime("HOP", self._sizes, _time(time_field))


class SlideWithSizeAndSlideOnTime(_OnTime):
    """A sliding window; `alias` gives it a name."""


# --- windows with a gap after them -----------------------------------------------------------------------------------


class Session:
    """Windows that last as long as rows follow each other; a gap without any row ends one."""

    @classmethod
    def with_gap(cls, gap: Expression) -> SessionWithGap:
        """Windows that a gap of this length ends: `Session.with_gap(lit(10).minutes)`."""
        return SessionWithGap(_size(gap))


class SessionWithGap:
    """A session window; `on` says on which time."""

    def __init__(self, gap: syntax.Expression) -> None:
        self._gap = gap

    def on(self, time_field: Expression) -> SessionWithGapOnTime:
        """The column that has the time: a time attribute, or in batch any point in time."""
        return SessionWithGapOnTime("SESSION", (self._gap,), _time(time_field))


class SessionWithGapOnTime(_OnTime):
    """A session window; `alias` gives it a name."""


# --- windows over which aggregates go --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OverWindow:
    """Rows around each row, over which aggregates go. Made by `Over`."""

    name: str
    specification: WindowSpecification


class Over:
    """Begins a window over which aggregates go."""

    @classmethod
    def partition_by(cls, *partition_by: Expression) -> OverWindowPartitioned:
        """Only rows that have the same of these are in one window."""
        return OverWindowPartitioned(tuple(_node(one, "what a window is partitioned by") for one in partition_by))

    @classmethod
    def order_by(cls, order_by: Expression) -> OverWindowPartitionedOrdered:
        """All rows are in one partition, in this order."""
        return OverWindowPartitioned(()).order_by(order_by)


class OverWindowPartitioned:
    """A window with its partition; `order_by` says in which order its rows are."""

    def __init__(self, partition: tuple[syntax.Expression, ...]) -> None:
        self._partition = partition

    def order_by(self, order_by: Expression) -> OverWindowPartitionedOrdered:
        """The order of rows in a window: in a stream, a time attribute."""
        item = OrderItem(_node(order_by, "what a window is ordered by"), order_by._is_descending is True)
        return OverWindowPartitionedOrdered(WindowSpecification(partition=self._partition, order=(item,)))


class OverWindowPartitionedOrdered:
    """A window from the first row of its partition to the current one, unless `preceding` says otherwise."""

    def __init__(self, specification: WindowSpecification) -> None:
        self._specification = specification

    def preceding(self, preceding: Expression) -> OverWindowPartitionedOrderedPreceding:
        """Where the window begins: so much time, or so many rows, before the current row, or `UNBOUNDED_ROW`."""
        unit, lower = _bound(preceding, "PRECEDING")
        begun = replace(self._specification, unit=unit, lower=lower, upper=Bound("CURRENT ROW"))
        return OverWindowPartitionedOrderedPreceding(begun)

    def alias(self, alias: str) -> OverWindow:
        """The window under a name, by which `over` knows it."""
        return OverWindow(alias, self._specification)


class OverWindowPartitionedOrderedPreceding:
    """A window that ends at the current row, unless `following` says otherwise."""

    def __init__(self, specification: WindowSpecification) -> None:
        self._specification = specification

    def following(self, following: Expression) -> OverWindowPartitionedOrderedPreceding:
        """Where the window ends: so much time, or so many rows, after the current row, or at it."""
        unit, upper = _bound(following, "FOLLOWING")
        if unit != self._specification.unit:
            raise ValidationError("the beginning and the end of a window must both count rows, or both time")
        return OverWindowPartitionedOrderedPreceding(replace(self._specification, upper=upper))

    def alias(self, alias: str) -> OverWindow:
        """The window under a name, by which `over` knows it."""
        return OverWindow(alias, self._specification)


_ENDS: Final = {"CURRENT ROW": "ROWS", "CURRENT RANGE": "RANGE", "UNBOUNDED ROW": "ROWS", "UNBOUNDED RANGE": "RANGE"}


def _bound(value: Expression, direction: str) -> tuple[str, Bound]:
    """What an end counts, rows or time (RANGE), and where it is."""
    node = _node(value, "an end of a window")
    if isinstance(node, syntax.Unit) and node.word in _ENDS:
        is_current = node.word.startswith("CURRENT")
        return _ENDS[node.word], Bound("CURRENT ROW") if is_current else Bound(direction)
    if isinstance(node, syntax.Call) and node.name == "$ROWS":
        return "ROWS", Bound(direction, node.operands[0])
    if not isinstance(node, syntax.IntervalLiteral):
        raise ValidationError(f"an end of a window must be a length of time, or row_interval(…), and not {value}")
    return "RANGE", Bound(direction, node)
