"""The protocol of a serializer that works on binary streams."""

from penstock.base.serializer import (
    TypeSerializer,
)

__all__ = [
    "TypeSerializer",
]
