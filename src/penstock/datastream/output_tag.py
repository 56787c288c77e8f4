"""Side outputs: `OutputTag`."""

from penstock.base.output_tag import OutputTag

__all__ = ["OutputTag"]
