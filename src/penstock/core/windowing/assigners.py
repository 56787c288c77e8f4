"""What every window assigner is: it says which windows a record belongs to (C1)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from typing import Any, Generic, TypeVar

from penstock.base.serializer import TypeSerializer
from penstock.core.windowing.triggers import Trigger

T = TypeVar("T")
V = TypeVar("V")
W = TypeVar("W")


class WindowAssigner(ABC, Generic[T, W]):
    """Puts each record into any number of windows. One object serves all keys, so it keeps nothing of its own."""

    class WindowAssignerContext(ABC):
        """What an assigner may look at beside the record."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Processing time in ms."""

        @abstractmethod
        def get_runtime_context(self) -> Any:
            """The operator's runtime context, whose keyed state is that of the record's key."""

    @abstractmethod
    def assign_windows(self, element: T, timestamp: int, context: WindowAssignerContext) -> Collection[W]:
        """The windows of a record; `timestamp` is its event time in ms, or -2**63 where it carries none."""

    @abstractmethod
    def get_default_trigger(self, env: Any) -> Trigger[T, W]:
        """The trigger of a stream that names none."""

    @abstractmethod
    def get_window_serializer(self) -> TypeSerializer[W]:
        """What writes windows into state; asked for only where windows are not of a built-in kind."""

    @abstractmethod
    def is_event_time(self) -> bool:
        """Whether windows end by event time: then records need timestamps, and may be late."""


class MergingWindowAssigner(WindowAssigner[T, W]):
    """An assigner whose windows may become one, such as sessions."""

    class MergeCallback(ABC, Generic[V]):
        """Is told which windows become one."""

        @abstractmethod
        def merge(self, to_be_merged: Collection[V], merge_result: V) -> None:
            """All of `to_be_merged` become the one window `merge_result`."""

    @abstractmethod
    def merge_windows(self, windows: Iterable[W], callback: MergeCallback[W]) -> None:
        """Look at the windows of a key, and tell `callback` of each group that becomes one window."""
