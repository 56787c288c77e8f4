"""Combination of the values that arrive at one vertex."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np


class Combine(Enum):
    """How several values for one vertex are combined."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"
    #: Not at all: the vertex gets all of them.
    NONE = "none"


@dataclass(frozen=True)
class Inbox:
    """The values that arrived for the vertices of a partition.

    Attributes:
        values: if combined, one for each vertex, undefined where `has` is false (0 for `Combine.SUM`). Otherwise all
            values that arrived, in the order of the vertices.
        has: whether anything arrived for a vertex.
        offsets: with `Combine.NONE`, vertex i has `values[offsets[i] : offsets[i + 1]]`; otherwise None.
    """

    values: Any
    has: Any
    offsets: Any = None


def get_identity(combine: Combine, kind: Any) -> Any:
    """Return the identity of the combination for a type: combining it with a value leaves the value unchanged."""
    if combine is Combine.SUM:
        return kind.type(0)
    is_least = combine is Combine.MAX
    if kind.kind == "f":
        return kind.type(-np.inf if is_least else np.inf)
    if kind.kind == "b":
        return np.bool_(not is_least)
    limits = np.iinfo(kind)
    return kind.type(limits.min if is_least else limits.max)


#: The functions that combine values.
UFUNCS = {Combine.SUM: np.add, Combine.MIN: np.minimum, Combine.MAX: np.maximum}
