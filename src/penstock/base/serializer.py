"""The interface of serializers that work on binary streams."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import BinaryIO, Generic, TypeVar

__all__ = ["TypeSerializer"]

T = TypeVar("T")


class TypeSerializer(ABC, Generic[T]):
    """Writes elements of one type to a binary stream and reads them back."""

    @abstractmethod
    def serialize(self, element: T, stream: BinaryIO) -> None:
        """Write one element at the stream's position."""

    @abstractmethod
    def deserialize(self, stream: BinaryIO) -> T:
        """Read the element at the stream's position."""
