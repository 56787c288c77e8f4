"""The name of a side output."""

from penstock.base.output_tag import (
    OutputTag,
)

__all__ = [
    "OutputTag",
]
