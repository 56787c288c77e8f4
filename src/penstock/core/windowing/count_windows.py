"""Windows independent of time: count windows, and the global window (C1)."""

from __future__ import annotations

from typing import Any

from penstock.base.errors import WrongValueError
from penstock.base.serializer import TypeSerializer
from penstock.base.typeinfo import Types
from penstock.core.windowing.assigners import WindowAssigner
from penstock.core.windowing.count_triggers import CountTrigger, NeverTrigger, PurgingTrigger
from penstock.core.windowing.triggers import Trigger
from penstock.core.windowing.windows import CountWindow, CountWindowSerializer, GlobalWindow, GlobalWindowSerializer
from penstock.state.descriptors import ValueStateDescriptor


class _CountWindows(WindowAssigner[Any, Any]):
    """Numbers the records of each key; the counter is kept in state."""

    def __init__(self, window_size: int, state_name: str) -> None:
        if window_size <= 0:
            raise WrongValueError(f"a count window needs a size over 0 records, not {window_size}")
        self.window_size = window_size
        self._descriptor = ValueStateDescriptor(state_name, Types.LONG())

    def _next_number(self, context: WindowAssigner.WindowAssignerContext) -> int:
        state = context.get_runtime_context().get_state(self._descriptor)
        number: int = state.value() or 0
        state.update(number + 1)
        return number

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        """Return a trigger that fires when the window is full, and purges it."""
        return PurgingTrigger(CountTrigger(self.window_size))

    def get_window_serializer(self) -> TypeSerializer[CountWindow]:
        """Return a serializer that writes the window's number."""
        return CountWindowSerializer()

    def is_event_time(self) -> bool:
        """No."""
        return False


class CountTumblingWindowAssigner(_CountWindows):
    """Consecutive windows of `window_size` records of a key."""

    def __init__(self, window_size: int) -> None:
        super().__init__(window_size, "tumble-count-assigner")

    @staticmethod
    def of(window_size: int) -> CountTumblingWindowAssigner:
        """Create an assigner for windows of `window_size` records."""
        return CountTumblingWindowAssigner(window_size)

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[CountWindow]:
        """Return the window that is currently being filled."""
        return [CountWindow(self._next_number(context) // self.window_size)]

    def __repr__(self) -> str:
        return f"CountTumblingWindowAssigner(window_size={self.window_size})"


class CountSlidingWindowAssigner(_CountWindows):
    """Windows of `window_size` records of a key, starting every `window_slide` records. A full window fires."""

    def __init__(self, window_size: int, window_slide: int) -> None:
        super().__init__(window_size, "slide-count-assigner")
        if window_slide <= 0:
            raise WrongValueError(f"a sliding count window needs a slide over 0 records, not {window_slide}")
        self.window_slide = window_slide

    @staticmethod
    def of(window_size: int, window_slide: int) -> CountSlidingWindowAssigner:
        """Create an assigner for windows of `window_size` records, one every `window_slide`."""
        return CountSlidingWindowAssigner(window_size, window_slide)

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[CountWindow]:
        """Return the windows that are currently being filled, the newest first."""
        number = self._next_number(context)
        last, slide = number // self.window_slide, self.window_slide
        first = max(0, -((self.window_size - 1 - number) // slide))  # the first window that is not full yet
        return [CountWindow(window) for window in range(last, first - 1, -1)]

    def __repr__(self) -> str:
        return f"CountSlidingWindowAssigner(window_size={self.window_size}, window_slide={self.window_slide})"


def count_windows(size: int, slide: int) -> WindowAssigner[Any, Any]:
    """Create an assigner for windows of `size` records, one every `slide` records; consecutive if `slide` is 0."""
    return CountSlidingWindowAssigner(size, slide) if slide else CountTumblingWindowAssigner(size)


class GlobalWindows(WindowAssigner[Any, Any]):
    """One window per key, which never ends: it needs a trigger, and usually an evictor or a purging trigger."""

    def __init__(self) -> None:
        super().__init__()

    @staticmethod
    def create() -> GlobalWindows:
        """Create the assigner."""
        return GlobalWindows()

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[GlobalWindow]:
        """Return the global window."""
        return [GlobalWindow()]

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        """Return a trigger that never fires."""
        return NeverTrigger()

    def get_window_serializer(self) -> TypeSerializer[GlobalWindow]:
        """Zeros."""
        return GlobalWindowSerializer()

    def is_event_time(self) -> bool:
        """No."""
        return False

    def __repr__(self) -> str:
        return "GlobalWindows()"
