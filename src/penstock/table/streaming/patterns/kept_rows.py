"""The values kept of a row until its match completes: only the values that conditions and measures may still read."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.table.data.logical_types import DataType
from penstock.table.plan.patterns import Aggregated, MatchTime, Navigation, RowReference
from penstock.table.typed.nodes import Constant, Field, Typed


class KeptRows:
    """The distinct expressions over the input columns whose values a kept row has."""

    def __init__(self, types: Sequence[DataType]) -> None:
        self._inputs = tuple(types)
        self.expressions: list[Typed] = []

    @property
    def types(self) -> list[DataType]:
        """The types of the values of a kept row."""
        return [expression.type for expression in self.expressions]

    def column(self, index: int) -> int:
        """Return the position of a column's value, and keep the value."""
        return self.place(Field(self._inputs[index], index))

    def place(self, expression: Typed) -> int:
        """Return the position of an expression's value, and keep the value."""
        if expression not in self.expressions:
            self.expressions.append(expression)
        return self.expressions.index(expression)

    def refer(self, references: Sequence[RowReference]) -> None:
        """Keep the values that these references read."""
        for reference in references:
            match reference:
                case Navigation():
                    self.column(reference.column)
                case Aggregated(call=call):
                    for operand in call.operands:
                        if not isinstance(operand, Constant):
                            self.place(operand)
                    if call.condition is not None:
                        self.place(call.condition)
                case MatchTime():
                    pass
