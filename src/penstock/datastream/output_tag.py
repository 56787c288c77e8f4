"""Side outputs: `OutputTag`."""

from penstock.common.output_tag import OutputTag

__all__ = ["OutputTag"]
