"""Programs of users under simulated faults: planted bugs have a short story, and correct programs pass."""

import random
import time

import pytest

from penstock.base.errors import ConfigurationError
from penstock.datastream import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.testing.simulate import STORY_LINES_MAX, Faults, SimulationFailure, effects, simulate

WORDS = [(f"key-{number % 3}", number) for number in range(24)]


class Count(KeyedProcessFunction):
    """The number of records of a key, in keyed state."""

    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        yield value[0], self.count.value()


class CountInSelf(KeyedProcessFunction):
    """The same, in an attribute, which no checkpoint holds."""

    def open(self, runtime_context):
        self.counts = {}

    def process_element(self, value, ctx):
        self.counts[value[0]] = self.counts.get(value[0], 0) + 1
        yield value[0], self.counts[value[0]]


def counting(function):
    return lambda env: env.from_collection(WORDS).key_by(lambda word: word[0]).process(function())


def test_a_correct_program_passes():
    result = simulate(counting(Count), histories=40)
    print("seed", result.seed)
    assert result.faults
    assert len(result.output["output"]) == len(WORDS)


def failure_of(program, **settings):
    with pytest.raises(SimulationFailure) as raised:
        simulate(program, histories=300, **settings)
    print(raised.value)
    assert len(str(raised.value).splitlines()) <= STORY_LINES_MAX
    return raised.value


def test_state_outside_of_checkpoints_is_found_and_its_seed_repeats_the_story():
    failure = failure_of(counting(CountInSelf))
    with pytest.raises(SimulationFailure) as again:
        simulate(counting(CountInSelf), histories=1, seed=failure.seed)
    assert again.value.story == failure.story


def test_randomness_in_output_is_reported_as_not_deterministic():
    failure = failure_of(lambda env: env.from_collection(WORDS).map(lambda word: (word, random.random())))
    assert "not deterministic" in str(failure)


def test_a_broken_invariant_is_found():
    failure = failure_of(counting(Count), invariant=lambda output: len(output["output"]) < len(WORDS))
    assert "invariant" in str(failure)


def test_without_crashes_state_outside_of_checkpoints_is_not_lost():
    quiet = Faults(
        crashes=False, rescales=False, slowness=False, duplicates=False, clock_jumps=False, storage_errors=False
    )
    assert simulate(counting(CountInSelf), histories=5, faults=quiet).histories == 5


def in_order_of_arrival():
    """Number records across keys, which arrive in another order in each history."""

    class Number(KeyedProcessFunction):
        def open(self, runtime_context):
            self.last = runtime_context.get_state(ValueStateDescriptor("last"))

        def process_element(self, value, ctx):
            yield self.last.value(), value[1]
            self.last.update(value[1])

    def program(env):
        spread = env.from_collection(WORDS).rebalance().map(lambda word: word).set_parallelism(3)
        return spread.key_by(lambda word: 0).process(Number())

    return program


def test_an_order_assumed_across_subtasks_is_found():
    failure_of(in_order_of_arrival())


class Flush(KeyedProcessFunction):
    """The sum of a key's records, when event time ends."""

    def open(self, runtime_context):
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum"))

    def process_element(self, value, ctx):
        self.sum.update((self.sum.value() or 0) + value[1])
        ctx.timer_service().register_event_time_timer(10**12)

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), self.sum.value()


def test_a_correct_timer_passes():
    result = simulate(lambda env: env.from_collection(WORDS).key_by(lambda w: w[0]).process(Flush()), histories=40)
    assert result.histories == 40
    assert result.faults.total() > 0


def send(word):
    effects("mails").append(word)
    return word


def test_a_sink_that_is_not_idempotent_is_found():
    failure = failure_of(lambda env: env.from_collection(WORDS).map(send))
    assert "mails: " in str(failure)


def test_jobs_are_rescaled_while_they_run():
    only = Faults(crashes=False, slowness=False, duplicates=False, clock_jumps=False, storage_errors=False)
    faults = simulate(counting(Count), histories=60, faults=only).faults
    assert faults["asked: rescale"] + faults["slots changed"] > 0
    assert not faults["kill"]


@pytest.mark.slow
def test_a_correct_program_passes_with_its_state_in_rocksdb():
    assert simulate(counting(Count), histories=100, uses_rocksdb=True).histories == 100


def test_a_program_without_streams_is_refused():
    with pytest.raises(ConfigurationError, match="let it return the stream"):
        simulate(lambda env: None, histories=1)


class CountTwice(Count):
    """A count that a processing-time timer emits, although the records alone should determine it."""

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        timers = ctx.timer_service()
        timers.register_processing_time_timer(timers.current_processing_time() + 5)

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), self.count.value()


def test_a_processing_time_timer_where_event_time_is_meant_is_found():
    failure_of(counting(CountTwice))


def stamp(word):
    return word, time.time_ns()


def test_event_time_from_the_wall_clock_is_reported_as_not_deterministic():
    failure = failure_of(lambda env: env.from_collection(WORDS).map(stamp))
    assert "not deterministic" in str(failure)


class CountBySubtask(KeyedProcessFunction):
    """Marks each record with its subtask, which a rescale changes."""

    def open(self, runtime_context):
        self.subtask = runtime_context.get_index_of_this_subtask()

    def process_element(self, value, ctx):
        yield value[0], self.subtask


def test_results_by_subtask_are_found_without_any_crash():
    failure_of(counting(CountBySubtask), faults=Faults(crashes=False))
