"""The changes in their order, each once, applied to a dictionary."""

from collections import Counter

from examples.change_events import changes

from penstock.common import Row, RowKind


def inputs():
    return (changes(2_000, seed=104),)


def answer(events):
    assert len(set(events)) < len(events)  # some came twice
    table: dict[int, tuple[str, str]] = {}
    told: Counter = Counter()

    def tell(kind, customer, name, city):
        told[Row.of_kind(kind, id=customer, name=name, city=city)] += 1

    for customer, _, operation, row in sorted(set(events), key=lambda event: event[:2]):
        before = table.pop(customer, None)
        if operation == "delete":
            assert before is not None
            tell(RowKind.DELETE, customer, *before)
            continue
        table[customer] = row
        if before is None:
            tell(RowKind.INSERT, customer, *row)
        elif before != row:
            tell(RowKind.UPDATE_BEFORE, customer, *before)
            tell(RowKind.UPDATE_AFTER, customer, *row)
    return told
