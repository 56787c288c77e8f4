"""What a capture of state is, whatever state: of keys, of operators, or of channels.

A capture is some state of an operator as of a checkpoint, safe from all that follows (G7). It is made in the task's
turn. In the background it stores itself in a `CaptureWriter`, which is the operator's part of the checkpoint in the
making, or it is discarded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol, TypeVar

Reference = TypeVar("Reference")


class StateCapture(Protocol):
    """See the module's text."""

    def store_in(self, writer: CaptureWriter) -> None:
        """Write all that was captured."""

    def discard(self) -> None:
        """Release what was captured; also called when it was stored. A second call changes nothing."""


class NativeCapture(StateCapture, Protocol):
    """All keyed state of an operator in a subtask as of a checkpoint, in the backend's own files."""

    @property
    def backend(self) -> str:
        """The backend's name."""

    @property
    def schemas(self) -> Mapping[str, str]:
        """The schemas of the states, by name."""

    def store(self, write: Callable[[str, bytes], Reference], known: Mapping[str, Reference]) -> dict[str, Reference]:
        """Store each file by `write(name, data)`, except those that the checkpoint built on already has unchanged."""

    def export(self) -> Iterator[tuple[str, bytes]]:
        """The same in the canonical format: (state name, file), the files of a state after each other."""


class CaptureWriter(Protocol):
    """Where captures store themselves. Names are those of states of one operator."""

    @property
    def max_parallelism(self) -> int:
        """How many key groups there are."""

    def write_list(self, name: str, mode: str, count: int, data: bytes) -> None:
        """An operator state, or the records in flight in a channel; `mode` says how it is redistributed."""

    def write_changes(self, name: str, schema: str, is_whole: bool, data: bytes) -> None:
        """What has changed of a keyed state; all of it if `is_whole`, or if the schema is not the one before."""

    def write_columns(self, name: str, is_addition: bool, data: bytes) -> None:
        """A keyed state in columns: all of it, or what the last completed checkpoint does not have."""

    def write_native(self, capture: NativeCapture) -> None:
        """All keyed state, in a backend's own files."""
