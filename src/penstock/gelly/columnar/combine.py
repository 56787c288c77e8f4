"""What becomes of values that come to one vertex."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np


class Combine(Enum):
    """What becomes of several values for one vertex."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"
    #: Nothing: the vertex gets all of them.
    NONE = "none"


@dataclass(frozen=True)
class Inbox:
    """What came for the vertices of a partition.

    Attributes:
        values: combined: one for each vertex, which means nothing where `has` is false, but for `Combine.SUM`, where
            it is 0. Otherwise all that came, in the order of the vertices.
        has: whether anything came for a vertex.
        offsets: with `Combine.NONE`: those of vertex i are `values[offsets[i] : offsets[i + 1]]`; otherwise None.
    """

    values: Any
    has: Any
    offsets: Any = None


def identity_of(combine: Combine, kind: Any) -> Any:
    """What changes nothing when it is combined with a value of this type."""
    if combine is Combine.SUM:
        return kind.type(0)
    is_least = combine is Combine.MAX
    if kind.kind == "f":
        return kind.type(-np.inf if is_least else np.inf)
    if kind.kind == "b":
        return np.bool_(not is_least)
    limits = np.iinfo(kind)
    return kind.type(limits.min if is_least else limits.max)


#: How values are combined.
UFUNCS = {Combine.SUM: np.add, Combine.MIN: np.minimum, Combine.MAX: np.maximum}
