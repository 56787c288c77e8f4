"""A program that keeps state, and what its snapshots become under another declaration."""

from collections.abc import Callable
from typing import Any

from penstock.runtime.operators.function_context import RuntimeContext
from penstock.runtime.operators.record.process import KeyedProcessOperator
from penstock.testing.operator_harness import OneInputOperatorHarness

GETTERS: dict[str, Callable[..., Any]] = {
    "value": RuntimeContext.get_state,
    "list": RuntimeContext.get_list_state,
    "map": RuntimeContext.get_map_state,
    "reducing": RuntimeContext.get_reducing_state,
    "aggregating": RuntimeContext.get_aggregating_state,
}


class Stateful:
    """Calls `work(state, argument)` for each record (key, argument), and emits what it returns."""

    def __init__(self, descriptor, work):
        self.descriptor = descriptor
        self.work = work

    def open(self, runtime_context):
        self.state = GETTERS[self.descriptor.kind](runtime_context, self.descriptor)

    def process_element(self, record, ctx):
        return [self.work(self.state, record[1])]

    def close(self):
        pass


def harness(descriptor, work, *snapshots, clock=None, **options):
    made = OneInputOperatorHarness(
        lambda: KeyedProcessOperator(Stateful(descriptor, work), lambda record: record[0]), clock=clock, **options
    )
    if snapshots:
        made.restore(*snapshots)
    return made


def written(descriptor, work, records, **options):
    """The snapshot that a program leaves."""
    with harness(descriptor, work, **options) as run:
        run.process_batch(records)
        return run.snapshot(1)


def read(descriptor, work, keys, *snapshots, **options):
    """What a program finds under keys; then that it finds the same in a snapshot of its own."""
    with harness(descriptor, work, *snapshots, **options) as run:
        run.process_batch([(key, None) for key in keys])
        found = run.values
        again = run.snapshot(2)
    with harness(descriptor, work, again, **options) as run:
        run.process_batch([(key, None) for key in keys])
        assert run.values == found
    return found
