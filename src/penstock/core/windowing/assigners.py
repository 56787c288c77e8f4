"""The base of all window assigners, which decide the windows of each record (C1)."""

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
    """Puts each record into any number of windows. One object serves all keys, so it keeps no state of its own."""

    class WindowAssignerContext(ABC):
        """The information available to an assigner besides the record."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Return the processing time in ms."""

        @abstractmethod
        def get_runtime_context(self) -> Any:
            """Return the operator's runtime context, whose keyed state belongs to the record's key."""

    @abstractmethod
    def assign_windows(self, element: T, timestamp: int, context: WindowAssignerContext) -> Collection[W]:
        """Return the windows of a record; `timestamp` is its event time in ms, or -2**63 if it has none."""

    @abstractmethod
    def get_default_trigger(self, env: Any) -> Trigger[T, W]:
        """Return the trigger for streams that set none."""

    @abstractmethod
    def get_window_serializer(self) -> TypeSerializer[W]:
        """Return the serializer of windows in state; used only if windows are not of a built-in type."""

    @abstractmethod
    def is_event_time(self) -> bool:
        """Return whether windows end by event time: then records need timestamps, and may be late."""


class MergingWindowAssigner(WindowAssigner[T, W]):
    """An assigner whose windows may merge, such as sessions."""

    class MergeCallback(ABC, Generic[V]):
        """Receives the windows that merge."""

        @abstractmethod
        def merge(self, to_be_merged: Collection[V], merge_result: V) -> None:
            """Merge all of `to_be_merged` into the window `merge_result`."""

    @abstractmethod
    def merge_windows(self, windows: Iterable[W], callback: MergeCallback[W]) -> None:
        """Examine the windows of a key, and call `callback` for each group that merges into one window."""
