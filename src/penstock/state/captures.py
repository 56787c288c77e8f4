"""Captures of state: keyed, operator or channel state.

A capture is an operator's state at a checkpoint, isolated from all later changes (G7). It is made in the task's turn.
In the background it stores itself in a `CaptureWriter`, which is the operator's part of the checkpoint in progress, or
it is discarded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol, TypeVar

Reference = TypeVar("Reference")


class StateCapture(Protocol):
    """See the module docstring."""

    def write_capture(self, writer: CaptureWriter) -> None:
        """Write everything that was captured."""

    def discard(self) -> None:
        """Release the captured state; also called after it was stored. A second call has no effect."""


class NativeCapture(StateCapture, Protocol):
    """All keyed state of an operator in a subtask at a checkpoint, in the backend's own files."""

    @property
    def backend(self) -> str:
        """The backend's name."""

    @property
    def schemas(self) -> Mapping[str, str]:
        """The schemas of the states, by name."""

    def store(self, write: Callable[[str, bytes], Reference], known: Mapping[str, Reference]) -> dict[str, Reference]:
        """Store each file with `write(name, data)`, except unchanged files of the checkpoint it builds on."""

    def export(self) -> Iterator[tuple[str, bytes]]:
        """Yield the same state in the canonical format: (state name, file), one state's files after another's."""


class CaptureWriter(Protocol):
    """The destination of captures. Names are state names of one operator."""

    @property
    def max_parallelism(self) -> int:
        """The number of key groups."""

    def write_list(self, name: str, mode: str, count: int, data: bytes) -> None:
        """Write an operator state, or the records in flight in a channel; `mode` says how it is redistributed."""

    def write_changes(self, name: str, schema: str, is_whole: bool, data: bytes) -> None:
        """Write the changes of a keyed state: all of it if `is_whole`, or if its schema has changed."""

    def write_columns(self, name: str, is_addition: bool, data: bytes) -> None:
        """Write a keyed state in columns: all of it, or the rows that the last completed checkpoint does not have."""

    def write_native(self, capture: NativeCapture) -> None:
        """Write all keyed state, in a backend's own files."""
