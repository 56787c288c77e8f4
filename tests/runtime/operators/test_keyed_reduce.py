"""The running reduce."""

from functools import partial

import hypothesis.strategies as st
from hypothesis import given, settings

from penstock.datastream.functions import ReduceFunction
from penstock.runtime.operators.keyed.aggregates import KeyedReduceOperator
from penstock.testing import OneInputOperatorHarness, Record, harness_for, run_hostile


class Sum(ReduceFunction):
    def reduce(self, value1, value2):
        return value1[0], value1[1] + value2[1]


def first(value):
    return value[0]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-5, 5)), max_size=12))
def test_running_reduce(values):
    """A2, D1: every record gives the new value of its key, whatever happens between records."""
    sums: dict[str, int] = {}
    expected = []
    for key, number in values:
        sums[key] = sums.get(key, 0) + number
        expected.append((key, sums[key]))
    run_hostile(partial(KeyedReduceOperator, Sum(), first), [Record(v, 1) for v in values], expected)


def test_reduced_value_may_be_none():
    """A2: None is a value like any other."""
    factory = partial(KeyedReduceOperator, lambda a, b: (a, b), lambda v: 0)
    run_hostile(factory, [Record(None), Record(1)], [None, (None, 1)])


def test_rescaling():
    """D4: at another parallelism each key's value is found by the one subtask that owns its key group."""
    keys = [f"key-{n}" for n in range(50)]
    with harness_for(Sum(), first) as old:
        old.process_batch([(key, 1) for key in keys])
        snapshot = old.snapshot(1)
    owners = dict.fromkeys(keys, 0)
    for subtask in range(3):
        new = OneInputOperatorHarness(partial(KeyedReduceOperator, Sum(), first), 3, subtask)
        new.restore(snapshot)
        new.open()
        for key in keys:
            new.process((key, 1))
        for key, total in new.values:
            owners[key] += total == 2
    assert set(owners.values()) == {1}


def test_rescaling_back():
    """D4: the snapshots of several subtasks together restore one subtask."""
    keys = [f"key-{n}" for n in range(50)]
    factory = partial(KeyedReduceOperator, Sum(), first)
    snapshots = []
    from penstock.state.keys import assign_key_group, subtask_of_key_group

    for subtask in range(3):
        with OneInputOperatorHarness(factory, 3, subtask) as harness:
            mine = [k for k in keys if subtask_of_key_group(assign_key_group(k, 128), 128, 3) == subtask]
            harness.process_batch([(k, 1) for k in mine])
            snapshots.append(harness.snapshot(1))
    with OneInputOperatorHarness(factory) as one:
        pass
    one = OneInputOperatorHarness(factory)
    one.restore(*snapshots)
    one.open()
    one.process_batch([(k, 1) for k in keys])
    assert one.values == [(k, 2) for k in keys]
