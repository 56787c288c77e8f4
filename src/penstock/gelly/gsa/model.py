"""The superstep of a gather-sum-apply iteration."""

from __future__ import annotations

from functools import reduce
from typing import Any

from penstock.core.operators.base import UserCodeError
from penstock.gelly.base.elements import EdgeDirection
from penstock.gelly.gsa.functions import ApplyFunction, GatherFunction, Neighbor, SumFunction
from penstock.gelly.spargel.model import collect_neighbours
from penstock.gelly.supersteps.model import Model, each
from penstock.gelly.supersteps.partition import Box, Partition, merged


class GatherSumApply(Model):
    """Gathers and sums in the partitions of the neighbours, then sums and applies in the partitions of the vertices."""

    name = "Gather-sum-apply Iteration"

    def __init__(self, gather: GatherFunction, sum_function: SumFunction, apply: ApplyFunction) -> None:
        self.functions = {"gather": gather, "sum": sum_function, "apply": apply}
        self._gather = gather
        self._sum = sum_function
        self._apply = apply

    def set_up(self, partition: Partition, direction: EdgeDirection) -> None:
        """Set up the model with a complete partition."""
        super().set_up(partition, direction)
        self._neighbours = collect_neighbours(partition, direction)

    def send(self) -> list[Box | None]:
        """Gather along the edges of active vertices, and sum."""
        gather, values, neighbours, send = (
            self._gather.gather,
            self.partition.values,
            self._neighbours,
            self.outboxes.send,
        )

        def call(position: int) -> None:
            value = values[position]
            for edge, target in neighbours[position]:
                send(target, gather(Neighbor(value, edge[2])))

        for function in (self._gather, self._sum):
            function.pre_superstep()
        each(call, self.active, self.operator_name, self.partition.vertex)
        self._gather.post_superstep()
        return self.outboxes.take(self._summed)

    def receive(self, boxes: list[Box | None]) -> None:
        """Sum the values gathered by all partitions, and apply the sums."""
        inbox = merged(boxes, self._summed)
        self._sum.post_superstep()
        apply, values, index = self._apply, self.partition.values, self.partition.index
        active: list[int] = []

        def call(target: Any) -> None:
            position = index.get(target)
            if position is None:
                return
            apply._result = None
            apply.apply(inbox[target][0], values[position])
            if apply._result is not None:
                values[position] = apply._result[0]
                active.append(position)

        apply.pre_superstep()
        each(call, inbox, self.operator_name, lambda target: target)
        apply.post_superstep()
        self.active = active

    def _summed(self, gathered: list[Any]) -> list[Any]:
        if len(gathered) == 1:
            return gathered
        try:
            return [reduce(self._sum.sum, gathered)]
        except Exception as error:
            raise UserCodeError(self.operator_name, gathered) from error
