"""The window types and their serializers (C1)."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable
from io import BytesIO
from typing import TYPE_CHECKING, Any, BinaryIO

from penstock.base.errors import WrongTypeError
from penstock.base.typeinfo import TypeSerializer
from penstock.runtime.records import MAX_TIMESTAMP

if TYPE_CHECKING:
    from penstock.runtime.windowing.assigners import MergingWindowAssigner


class Window(ABC):
    """A finite group of records. Windows compare and hash by value.

    Examples:
        >>> from penstock.datastream import TimeWindow
        >>> TimeWindow(0, 60_000).max_timestamp()
        59999
    """

    __slots__ = ()

    @abstractmethod
    def max_timestamp(self) -> int:
        """Return the last ms that belongs to the window; it is the timestamp of the window's results."""


class TimeWindow(Window):
    """The window [start, end), in ms.

    Examples:
        >>> from penstock.datastream import TimeWindow
        >>> TimeWindow(0, 10).cover(TimeWindow(5, 20)), TimeWindow(0, 10).intersects(TimeWindow(11, 20))
        (TimeWindow(start=0, end=20), False)
        >>> TimeWindow.get_window_start_with_offset(timestamp=75_000, offset=0, window_size=60_000)
        60000
    """

    __slots__ = ("end", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end

    def max_timestamp(self) -> int:
        """Return the last ms that belongs to the window."""
        return self.end - 1

    def intersects(self, other: TimeWindow) -> bool:
        """Return whether the windows overlap or touch."""
        return self.start <= other.end and self.end >= other.start

    def cover(self, other: TimeWindow) -> TimeWindow:
        """Return the smallest window that covers both."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))

    @staticmethod
    def get_window_start_with_offset(timestamp: int, offset: int, window_size: int) -> int:
        """Return the start of the aligned window that contains `timestamp`."""
        return timestamp - (timestamp - offset) % window_size

    @staticmethod
    def merge_windows(windows: Iterable[TimeWindow], callback: MergingWindowAssigner.MergeCallback[Any]) -> None:
        """Call `callback` for each group of windows that overlap or touch, with the window that covers the group."""
        groups: list[tuple[TimeWindow, set[TimeWindow]]] = []
        for window in sorted(windows):
            if groups and groups[-1][0].intersects(window):
                cover, group = groups[-1]
                groups[-1] = (cover.cover(window), group | {window})
            else:
                groups.append((window, {window}))
        for cover, group in groups:
            if len(group) > 1:
                callback.merge(group, cover)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TimeWindow) and (self.start, self.end) == (other.start, other.end)

    def __lt__(self, other: TimeWindow) -> bool:
        return (self.start, self.end) < (other.start, other.end)

    def __le__(self, other: TimeWindow) -> bool:
        return (self.start, self.end) <= (other.start, other.end)

    def __hash__(self) -> int:
        return hash((self.start, self.end))

    def __repr__(self) -> str:
        return f"TimeWindow(start={self.start}, end={self.end})"


class CountWindow(Window):
    """The window of a key with the number `id`, counted from 0; it has no times.

    Examples:
        >>> from penstock.datastream import CountWindow
        >>> CountWindow(2).id, CountWindow(2) == CountWindow(2)
        (2, True)
    """

    __slots__ = ("id",)

    def __init__(self, id: int) -> None:
        self.id = id

    def max_timestamp(self) -> int:
        """Return the end of time, 2**63 - 1 ms."""
        return MAX_TIMESTAMP

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CountWindow) and self.id == other.id

    def __hash__(self) -> int:
        return hash((CountWindow, self.id))

    def __repr__(self) -> str:
        return f"CountWindow(id={self.id})"


class GlobalWindow(Window):
    """The single window of all records of a key; it never ends.

    Examples:
        >>> from penstock.datastream import GlobalWindow
        >>> GlobalWindow.get() == GlobalWindow()
        True
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()

    @staticmethod
    def get() -> GlobalWindow:
        """Return the window; all instances are equal."""
        return GlobalWindow()

    def max_timestamp(self) -> int:
        """Return the end of time, 2**63 - 1 ms."""
        return MAX_TIMESTAMP

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GlobalWindow)

    def __hash__(self) -> int:
        return hash(GlobalWindow)

    def __repr__(self) -> str:
        return "GlobalWindow()"


_TWO_LONGS = struct.Struct(">qq")
_ONE_LONG = struct.Struct(">q")


class TimeWindowSerializer(TypeSerializer[TimeWindow]):
    """Writes 16 bytes: start and end, in ms, big endian.

    Examples:
        >>> import io
        >>> from penstock.datastream.window import TimeWindow, TimeWindowSerializer
        >>> file = io.BytesIO()
        >>> TimeWindowSerializer().serialize(TimeWindow(0, 60_000), file)
        >>> TimeWindowSerializer().deserialize(io.BytesIO(file.getvalue()))
        TimeWindow(start=0, end=60000)
    """

    def serialize(self, element: TimeWindow, stream: BinaryIO) -> None:
        """Write the window."""
        stream.write(_TWO_LONGS.pack(element.start, element.end))

    def deserialize(self, stream: BinaryIO) -> TimeWindow:
        """Read a window."""
        return TimeWindow(*_TWO_LONGS.unpack(stream.read(_TWO_LONGS.size)))


class CountWindowSerializer(TypeSerializer[CountWindow]):
    """Writes 8 bytes: the window's number, big endian.

    Examples:
        >>> import io
        >>> from penstock.datastream.window import CountWindow, CountWindowSerializer
        >>> file = io.BytesIO()
        >>> CountWindowSerializer().serialize(CountWindow(2), file)
        >>> CountWindowSerializer().deserialize(io.BytesIO(file.getvalue()))
        CountWindow(id=2)
    """

    def serialize(self, element: CountWindow, stream: BinaryIO) -> None:
        """Write the window."""
        stream.write(_ONE_LONG.pack(element.id))

    def deserialize(self, stream: BinaryIO) -> CountWindow:
        """Read a window."""
        return CountWindow(*_ONE_LONG.unpack(stream.read(_ONE_LONG.size)))


class GlobalWindowSerializer(TypeSerializer[GlobalWindow]):
    """Writes 8 zero bytes.

    Examples:
        >>> import io
        >>> from penstock.datastream.window import GlobalWindow, GlobalWindowSerializer
        >>> file = io.BytesIO()
        >>> GlobalWindowSerializer().serialize(GlobalWindow(), file)
        >>> GlobalWindowSerializer().deserialize(io.BytesIO(file.getvalue()))
        GlobalWindow()
    """

    def serialize(self, element: GlobalWindow, stream: BinaryIO) -> None:
        """Write the window."""
        stream.write(bytes(_ONE_LONG.size))

    def deserialize(self, stream: BinaryIO) -> GlobalWindow:
        """Read a window."""
        stream.read(_ONE_LONG.size)
        return GlobalWindow()


#: Represents a window in state: a plain value that every backend can keep, and equal for equal windows.
WindowToken = tuple[int, ...] | bytes


class WindowTokens:
    """Converts windows to tokens for state, and back.

    The tokens of built-in windows are tuples: (start, end), (id,) and (). All others are the bytes that the assigner's
    serializer writes.
    """

    def __init__(self, serializer: Any) -> None:
        self._serializer = serializer

    def to_token(self, window: Any) -> WindowToken:
        """Return the token of a window."""
        kind = window.__class__
        if kind is TimeWindow:
            return (window.start, window.end)
        if kind is CountWindow:
            return (window.id,)
        if kind is GlobalWindow:
            return ()
        stream = BytesIO()
        self._require_serializer(window).serialize(window, stream)
        return stream.getvalue()

    def to_window(self, token: WindowToken) -> Any:
        """Return the window that a token represents."""
        if isinstance(token, tuple):
            if len(token) == 2:
                return TimeWindow(*token)
            return CountWindow(token[0]) if token else GlobalWindow()
        return self._require_serializer(token).deserialize(BytesIO(token))

    def _require_serializer(self, window: Any) -> Any:
        if not hasattr(self._serializer, "serialize"):
            raise WrongTypeError(
                f"get_window_serializer() of the window assigner returned {self._serializer!r}, but the window "
                f"{window!r} must be kept in state: return a TypeSerializer"
            )
        return self._serializer
