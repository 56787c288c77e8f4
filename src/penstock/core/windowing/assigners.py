"""What every window assigner is: it says which windows a record belongs to (C1)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from typing import Any

from penstock.common.serializer import TypeSerializer
from penstock.core.windowing.triggers import Trigger


class WindowAssigner(ABC):
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
    def assign_windows(self, element: Any, timestamp: int, context: WindowAssignerContext) -> Collection[Any]:
        """The windows of a record; `timestamp` is its event time in ms, or -2**63 where it carries none."""

    @abstractmethod
    def get_default_trigger(self, env: Any) -> Trigger:
        """The trigger of a stream that names none."""

    @abstractmethod
    def get_window_serializer(self) -> TypeSerializer[Any]:
        """What writes windows into state; asked for only where they are none of the built-in kinds."""

    @abstractmethod
    def is_event_time(self) -> bool:
        """Whether windows end by event time: then records need timestamps, and may be late."""


class MergingWindowAssigner(WindowAssigner):
    """An assigner whose windows may become one, such as sessions."""

    class MergeCallback(ABC):
        """Is told which windows become one."""

        @abstractmethod
        def merge(self, to_be_merged: Collection[Any], merge_result: Any) -> None:
            """All of `to_be_merged` become the one window `merge_result`."""

    @abstractmethod
    def merge_windows(self, windows: Iterable[Any], callback: MergeCallback) -> None:
        """Look at the windows of a key, and tell `callback` of each group that becomes one window."""
