"""Choice of the window operator (C1): a fast one if possible, otherwise the general one; kernels for columns.

The choice affects speed only. All operators for windows of records can restore each other's state (`kept_windows`), so
adding a trigger, an evictor or `clear` to a program does not orphan its savepoints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from penstock.base.errors import UnsupportedError
from penstock.core.columns.expressions import Aggregate
from penstock.core.columns.keys import ColumnKey
from penstock.core.operators.columnar.columnar_session import ColumnarSessionOperator
from penstock.core.operators.columnar.columnar_window import ColumnarWindowOperator
from penstock.core.operators.window.aligned_window import AlignedWindowOperator
from penstock.core.operators.window.session_window import SessionWindowOperator
from penstock.core.operators.window.window_contents import WindowContents, WindowResult
from penstock.core.operators.window.window_operator import WindowOperator
from penstock.core.windowing import (
    CumulativeEventTimeWindows,
    EventTimeSessionWindows,
    EventTimeTrigger,
    Evictor,
    SlidingEventTimeWindows,
    Trigger,
    TumblingEventTimeWindows,
    WindowAssigner,
)
from penstock.plan.nodes import Factory, OperatorNode

#: The assigners whose windows have specialized operators.
_FAST: Final[dict[type[Any], Callable[..., Any]]] = {
    TumblingEventTimeWindows: AlignedWindowOperator,
    SlidingEventTimeWindows: AlignedWindowOperator,
    CumulativeEventTimeWindows: AlignedWindowOperator,
    EventTimeSessionWindows: SessionWindowOperator,
}
#: The operators for windows of columns.
_COLUMNAR: Final[dict[type[Any], Callable[..., Any]]] = {
    TumblingEventTimeWindows: ColumnarWindowOperator,
    SlidingEventTimeWindows: ColumnarWindowOperator,
    CumulativeEventTimeWindows: ColumnarWindowOperator,
    EventTimeSessionWindows: ColumnarSessionOperator,
}


@dataclass(frozen=True)
class WindowNode(OperatorNode):
    """Keyed windows of records."""

    key_selector: Callable[[Any], Any]
    assigner: WindowAssigner[Any, Any]
    #: the assigner's default trigger, unless the program sets another
    trigger: Trigger[Any, Any]
    contents: WindowContents
    result: WindowResult | None = None
    #: how long (ms) after its end a window accepts late records
    lateness_ms: int = 0
    late_tag: str | None = None
    evictor: Evictor | None = None
    #: whether the window function is notified when windows are cleaned up
    clears: bool = False

    def factory(self) -> Factory:
        """Return a fast operator if windows fire once at their end, without evictor or `clear`, else the general."""
        arguments = (self.contents, self.result, self.lateness_ms, self.late_tag)
        fast = _FAST.get(type(self.assigner))
        fires_at_end = type(self.trigger) is EventTimeTrigger
        if fast is not None and fires_at_end and self.evictor is None and not self.clears:
            return partial(fast, self.key_selector, self.assigner, *arguments)
        return partial(WindowOperator, self.key_selector, self.assigner, self.trigger, *arguments, evictor=self.evictor)

    def parts(self) -> tuple[Any, ...]:
        """Return the parts that define the windows and their contents; savepoints survive a change of the others."""
        return self.key_selector, self.assigner, self.contents, self.result


@dataclass(frozen=True)
class ColumnWindowNode(OperatorNode):
    """Keyed windows of columns, aggregated by kernels; a window fires once, at its end.

    Raises:
        UnsupportedError: for windows other than tumbling, sliding, cumulative and session windows of event time.
    """

    key: ColumnKey
    assigner: WindowAssigner[Any, Any]
    aggregates: Sequence[Aggregate]
    late_tag: str | None = None

    def __post_init__(self) -> None:
        if type(self.assigner) not in _COLUMNAR:
            raise UnsupportedError(
                "select supports tumbling, sliding, cumulative and session windows of event time, not "
                f"{self.assigner!r}; use aggregate()"
            )

    def factory(self) -> Factory:
        """Return the operator for the assigner's windows."""
        return partial(_COLUMNAR[type(self.assigner)], self.key, self.assigner, self.aggregates, self.late_tag)

    def parts(self) -> tuple[Any, ...]:
        """Return the parts that define the windows and their keys."""
        return self.key, self.assigner
