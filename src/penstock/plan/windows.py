"""Which operator keeps windows (C1): the fast ones where they can, the general one otherwise, kernels for columns.

The choice is only one of speed. Each of the operators for windows of records begins from what any of them wrote
(`kept_windows`), so adding a trigger, an evictor or `clear` to a program does not orphan its savepoints.
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

#: The assigners whose windows have operators of their own.
_FAST: Final[dict[type[Any], Callable[..., Any]]] = {
    TumblingEventTimeWindows: AlignedWindowOperator,
    SlidingEventTimeWindows: AlignedWindowOperator,
    CumulativeEventTimeWindows: AlignedWindowOperator,
    EventTimeSessionWindows: SessionWindowOperator,
}
#: The same for columns.
_COLUMNAR: Final[dict[type[Any], Callable[..., Any]]] = {
    TumblingEventTimeWindows: ColumnarWindowOperator,
    SlidingEventTimeWindows: ColumnarWindowOperator,
    CumulativeEventTimeWindows: ColumnarWindowOperator,
    EventTimeSessionWindows: ColumnarSessionOperator,
}


@dataclass(frozen=True)
class WindowNode(OperatorNode):
    """Windows of records by key."""

    key_selector: Callable[[Any], Any]
    assigner: WindowAssigner[Any, Any]
    #: the assigner's default one, unless the program sets another
    trigger: Trigger[Any, Any]
    contents: WindowContents
    result: WindowResult | None = None
    #: for how long (ms) after its end a window takes late records
    lateness_ms: int = 0
    late_tag: str | None = None
    evictor: Evictor | None = None
    #: whether the window function wants to hear of windows that are cleaned up
    clears: bool = False

    def factory(self) -> Factory:
        """A fast operator when windows fire once at their end, and nothing but their contents is looked at."""
        arguments = (self.contents, self.result, self.lateness_ms, self.late_tag)
        fast = _FAST.get(type(self.assigner))
        fires_at_end = type(self.trigger) is EventTimeTrigger
        if fast is not None and fires_at_end and self.evictor is None and not self.clears:
            return partial(fast, self.key_selector, self.assigner, *arguments)
        return partial(WindowOperator, self.key_selector, self.assigner, self.trigger, *arguments, evictor=self.evictor)

    def parts(self) -> tuple[Any, ...]:
        """What the windows are and hold; not what decides when they fire, which a savepoint outlives."""
        return self.key_selector, self.assigner, self.contents, self.result


@dataclass(frozen=True)
class ColumnWindowNode(OperatorNode):
    """Windows of columns by key, aggregated by kernels; a window fires once, at its end.

    Raises:
        NotImplementedError: for other windows than tumbling, sliding, cumulative and session windows of event time.
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
        """The operator for the assigner's windows."""
        return partial(_COLUMNAR[type(self.assigner)], self.key, self.assigner, self.aggregates, self.late_tag)

    def parts(self) -> tuple[Any, ...]:
        """What the windows are and hold."""
        return self.key, self.assigner
