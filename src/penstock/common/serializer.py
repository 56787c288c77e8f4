"""The protocol of a serializer that works on binary streams."""

from penstock.base.typeinfo import (
    TypeSerializer,
)

__all__ = [
    "TypeSerializer",
]
