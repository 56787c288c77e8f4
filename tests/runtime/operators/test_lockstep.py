"""Operators that work in step: their tasks yield rounds, and go on with the answers."""

from __future__ import annotations

from collections.abc import Generator

from tests.datastream.environments import collect, local_environment

from penstock.plan.transformation import Transformation, Upstream
from penstock.runtime.operators.base import Answer, LockstepOperator, Round, exchanged
from penstock.runtime.records import Batch
from penstock.runtime.task.channels.result_partition import HashPartitioner


def test_everybody_gets_what_is_for_them_and_all_reports() -> None:
    answers = exchanged([Round(["a to a", "a to b"], 1), Round(["b to a", "b to b"], 2)])
    assert answers == [Answer(["a to a", "b to a"], [1, 2]), Answer(["a to b", "b to b"], [1, 2])]


class PassAround(LockstepOperator):
    """Passes the sum of its input on to the next subtask until it is back, and tells what all had."""

    def open(self) -> None:
        self.held = 0

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        self.held += sum(batch.values)

    def rounds(self) -> Generator[Round, Answer, None]:
        me, subtasks = self.context.subtask_index, self.context.parallelism
        was = self.held
        for _ in range(subtasks):
            payloads = [self.held if one == (me + 1) % subtasks else None for one in range(subtasks)]
            answer = yield Round(payloads, self.held, "passed on")
            self.held = next(payload for payload in answer.payloads if payload is not None)
        assert self.held == was
        self.output.collect(Batch([(me, sum(answer.reports))]))


def test_subtasks_of_the_local_driver_take_turns() -> None:
    for parallelism in (1, 3):
        env = local_environment(parallelism, execution__runtime_mode="BATCH")
        numbers = env.from_collection(list(range(100)))
        inputs = tuple(Upstream(one.transformation, HashPartitioner(int)) for one in numbers.upstreams)
        transformation = Transformation("Pass Around", PassAround, inputs)
        env.add(transformation)
        found = collect(env.build_stream((Upstream(transformation),)).map(lambda pair: pair))
        assert sorted(found) == [(subtask, 4950) for subtask in range(parallelism)]


def test_an_operator_without_rounds_ends() -> None:
    class Quiet(LockstepOperator):
        def process_batch(self, batch: Batch, input_index: int = 0) -> None:
            self.output.collect(batch)

        def rounds(self) -> Generator[Round, Answer, None]:
            yield from ()

    env = local_environment(2, execution__runtime_mode="BATCH")
    inputs = tuple(Upstream(one.transformation, HashPartitioner(int)) for one in env.from_collection([1, 2]).upstreams)
    transformation = Transformation("Quiet", Quiet, inputs)
    env.add(transformation)
    assert sorted(collect(env.build_stream((Upstream(transformation),)))) == [1, 2]
