"""Rows whose fields are in another order than their declared type says, wherever a type can be declared (A2)."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from tests.datastream.environments import collect, local_environment

from penstock.base.declared_values import TypedKey, fitting, row_making, typed_key
from penstock.base.errors import MisuseError, WrongValueError
from penstock.base.watermark_strategy import WatermarkGenerator
from penstock.common import OutputTag, Row, Types, WatermarkStrategy
from penstock.datastream.functions import (
    AggregateFunction,
    BroadcastProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
    ProcessWindowFunction,
)
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.datastream.window import TumblingEventTimeWindows

INT, STRING, FLOAT = Types.INT(), Types.STRING(), Types.FLOAT()
BILL = Types.ROW_NAMED(["paid", "owed"], [INT, INT])
NESTED = Types.ROW_NAMED(["k", "bills"], [INT, Types.LIST(BILL)])
MODES = ("STREAMING", "MICRO_BATCH", "BATCH")


def bill(paid: int) -> Row:
    """With the fields in another order than `BILL`."""
    return Row(owed=100, paid=paid)


def in_mode(mode: str, parallelism: int = 1) -> Any:
    return local_environment(parallelism, execution__runtime_mode=mode)


INSIDE: list[tuple[Any, Any, Any]] = [
    (BILL, bill(1), Row(paid=1, owed=100)),
    (Types.LIST(BILL), [bill(1)], [Row(paid=1, owed=100)]),
    (Types.OBJECT_ARRAY(BILL), [bill(1), None], [Row(paid=1, owed=100), None]),
    (Types.OBJECT_ARRAY(BILL), (bill(1),), (Row(paid=1, owed=100),)),
    (Types.MAP(STRING, BILL), {"a": bill(1), "b": None}, {"a": Row(paid=1, owed=100), "b": None}),
    (Types.MAP(BILL, INT), {bill(1): 1}, {Row(paid=1, owed=100): 1}),
    (Types.TUPLE([INT, BILL]), (7, bill(1)), (7, Row(paid=1, owed=100))),
    (NESTED, Row(bills=[bill(1)], k=7), Row(k=7, bills=[Row(paid=1, owed=100)])),
    (NESTED, Row(k=7, bills=[bill(1)]), Row(k=7, bills=[Row(paid=1, owed=100)])),
    (NESTED, (7, [bill(1)]), Row(k=7, bills=[Row(paid=1, owed=100)])),
    (NESTED, {"bills": [bill(1)], "k": 7}, Row(k=7, bills=[Row(paid=1, owed=100)])),
    (Types.ROW([INT, BILL]), Row(7, bill(1)), Row(7, Row(paid=1, owed=100))),
    (Types.ROW([INT, INT]), Row(f1=2, f0=1), Row(f0=1, f1=2)),
    (Types.ROW([INT, BILL]), Row(a=2, b=bill(1)), Row(a=2, b=Row(paid=1, owed=100))),
    (Types.ROW([INT, INT]), Row(a=2, b=1), Row(a=2, b=1)),  # a type without names goes by position
    (Types.LIST(Types.LIST(BILL)), [[bill(1)], []], [[Row(paid=1, owed=100)], []]),
]


@pytest.mark.parametrize(("declared", "value", "wanted"), INSIDE)
def test_rows_inside_other_types_get_the_order_of_the_type(declared: Any, value: Any, wanted: Any) -> None:
    """A2: at every depth, in what a function emits and in a collection; the function's own value does not change."""
    before = repr(value)
    make = row_making(declared)
    assert make is not None
    made = make(value)
    assert (repr(made), repr(value)) == (repr(wanted), before)
    assert make(made) is made
    env = local_environment()
    assert list(map(repr, collect(env.from_collection([value], declared).map(lambda v: v)))) == [repr(wanted)]
    emitted = env.from_collection([0]).map(lambda _: value, declared).map(lambda v: repr(v))
    assert collect(emitted) == [repr(wanted)]


def test_states_keep_other_forms_of_rows() -> None:
    """A2: only rows with names change; those inside other forms too."""
    make = fitting(NESTED, keeps_form=True)
    assert make is not None
    for value in ((7, []), [7, []], {"k": 7, "bills": []}, Row(7, []), None, (7, [(1, 100)])):
        assert make(value) is value
    assert make((7, [bill(1)])) == (7, [Row(paid=1, owed=100)])
    assert repr(make(Row(7, [bill(1)]))) == repr(Row(7, [Row(paid=1, owed=100)]))
    assert make(Row(bills=[(1, 100)], k=7)) == Row(k=7, bills=[(1, 100)])


def test_types_without_rows_have_no_function() -> None:
    """A2: so nothing is called for their records."""
    for declared in (None, INT, Types.TUPLE([INT, STRING]), Types.LIST(INT), Types.MAP(STRING, INT), STRING):
        assert fitting(declared) is None
        assert typed_key(len, declared) is len


def test_a_type_with_rows_and_floats_has_both() -> None:
    """A2: the order of the fields comes first, so the FLOAT is the right field."""
    make = fitting(Types.LIST(Types.ROW_NAMED(["n", "share"], [INT, FLOAT])))
    assert make is not None
    assert make([Row(share=0.1, n=16777217)]) == [Row(n=16777217, share=0.10000000149011612)]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (Row(owned=100, paid=1), "no field 'owed', and the type has no field 'owned'"),
        (Row(paid=1), "it has no field 'owed'"),
        (Row(paid=1, owed=2, more=3), "the type has no field 'more'"),
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_a_row_of_other_names_is_an_error(mode: str, row: Row, problem: str) -> None:
    """A2: the error has the operator, the row, its type's fields, and those that differ; rows inside lists too."""
    for declared, value in ((BILL, row), (Types.LIST(BILL), [row]), (NESTED, Row(k=1, bills=[row]))):
        stream = in_mode(mode).from_collection([0]).map(lambda _, value=value: value, declared).name("Bills")
        with pytest.raises(Exception, match=r"(?s)'Bills'.*fields are paid, owed") as raised:
            collect(stream.map(lambda v: v))
        assert problem in str(raised.value)
    with pytest.raises(WrongValueError, match=problem):
        local_environment().from_collection([row], BILL)


class Aside(ProcessFunction):
    def process_element(self, value, ctx):
        yield OutputTag("bills"), bill(value)
        yield OutputTag("shares"), 0.1
        yield OutputTag("other"), bill(value)
        yield bill(value)


@pytest.mark.parametrize("mode", MODES)
def test_a_side_output_is_what_its_tag_declares(mode: str) -> None:
    """A2: rows in the order of the type and FLOATs in single precision; untyped outputs stay as they are."""
    env = in_mode(mode)
    main = env.from_collection([1, 2]).process(Aside())
    bills = main.get_side_output(OutputTag("bills", BILL))
    assert collect(bills.key_by(lambda row: 0).sum(0).map(lambda row: row.paid))[-1] == 3
    bills = main.get_side_output(OutputTag("bills", BILL))  # read once more
    assert collect(bills.map(lambda row: tuple(row))) == [(1, 100), (2, 100)]
    assert collect(main.get_side_output(OutputTag("shares", FLOAT)))[0] == 0.10000000149011612
    assert collect(main.get_side_output(OutputTag("other")).map(lambda row: tuple(row)))[0] == (100, 1)
    assert collect(main.map(lambda row: tuple(row)))[0] == (100, 1)


def test_a_side_output_of_a_typed_operator_has_its_own_type() -> None:
    """A2: the type of the main output is not that of the side output."""
    main = local_environment().from_collection([1]).process(Aside(), BILL)
    assert collect(main.map(lambda row: tuple(row))) == [(1, 100)]
    assert collect(main.get_side_output(OutputTag("other")).map(lambda row: tuple(row))) == [(100, 1)]
    wide = main.get_side_output(OutputTag("bills", Types.ROW_NAMED(["owed"], [INT]))).map(lambda row: row)
    with pytest.raises(Exception, match="the type has no field 'paid'"):
        collect(wide)


def test_a_side_output_has_one_type() -> None:
    """A2: as in Flink, which refuses a second one."""
    main = local_environment().from_collection([1]).process(Aside())
    main.get_side_output(OutputTag("bills", BILL))
    with pytest.raises(MisuseError, match="'bills' is read with two types"):
        main.get_side_output(OutputTag("bills", NESTED))


class AtEachBill(WatermarkGenerator):
    def on_event(self, value, timestamp, output):
        output.emit_watermark(timestamp)

    def on_periodic_emit(self, output):
        pass


def test_late_records_are_what_their_tag_declares() -> None:
    """A2: the side output of a window."""
    late = OutputTag("late", BILL)
    strategy = WatermarkStrategy.for_generator(AtEachBill).with_timestamp_assigner(lambda row, _: row.paid)
    timed = local_environment().from_collection([bill(100), bill(1)]).assign_timestamps_and_watermarks(strategy)
    windows = timed.key_by(lambda row: 0).window(TumblingEventTimeWindows.of(10))
    reduced = windows.side_output_late_data(late).reduce(lambda one, other: one)
    assert collect(reduced.get_side_output(late).map(lambda row: tuple(row))) == [(1, 100)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_what_a_reduce_returns_has_the_type_of_the_stream(mode: str, backend: str) -> None:
    """A2: the function's next call is given the row in the order of the type, and so is what follows."""

    def add(one, other):
        assert one[1] == other[1] == 100
        return Row(owed=one.owed, paid=one.paid + other.paid)

    env = local_environment(execution__runtime_mode=mode, state__backend__type=backend)
    rows = env.from_collection([Row(n, 100) for n in (1, 2, 3)], BILL)
    keyed = rows.key_by(lambda row: 0)
    assert collect(keyed.reduce(add).map(lambda row: row[0]))[-1] == 6
    timed = rows.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row, _: row.paid)
    )
    windows = timed.key_by(lambda row: 0).window(TumblingEventTimeWindows.of(10))
    assert collect(windows.reduce(add).map(lambda row: row[0])) == [6]
    positions = windows.reduce(add, First(), INT)
    assert collect(positions) == [6]


class First(ProcessWindowFunction):
    def process(self, key, context, elements):
        return [row[0] for row in elements]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_rows_of_the_same_fields_are_one_key(mode: str, parallelism: int) -> None:
    """A2: with a declared type of the key, which says the order; rows inside a tuple too."""
    pair = Types.ROW_NAMED(["a", "b"], [INT, INT])
    for declared, around in ((pair, lambda row: row), (Types.TUPLE([pair]), lambda row: (row,))):
        env = in_mode(mode, parallelism)

        def key(n, around=around):
            return around(Row(b=1, a=2) if n % 2 else Row(a=2, b=1))

        sums = env.from_collection(list(range(6))).key_by(key, declared).reduce(lambda one, other: one + other)
        assert max(collect(sums)) == 15


def test_a_typed_key_can_be_sent() -> None:
    """A2: as its selector can."""
    key = pickle.loads(pickle.dumps(TypedKey(bill, BILL)))
    assert tuple(key(1)) == (1, 100)


@pytest.mark.parametrize("mode", MODES)
def test_a_join_takes_the_types_of_its_keys(mode: str) -> None:
    """K3: the types that `where` and `equal_to` take hold."""
    pair = Types.ROW_NAMED(["a", "b"], [INT, INT])
    env = in_mode(mode)
    by_time = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda n, _: n)
    one, other = (env.from_collection([n]).assign_timestamps_and_watermarks(by_time) for n in (1, 2))
    joined = one.join(other).where(lambda n: Row(a=2, b=1), pair).equal_to(lambda n: Row(b=1, a=2), pair)
    assert collect(joined.window(TumblingEventTimeWindows.of(10)).apply(lambda a, b: (a, b))) == [(1, 2)]


class LastBill(AggregateFunction):
    def create_accumulator(self):
        return bill(0)

    def add(self, value, accumulator):
        assert accumulator[1] == 100
        return bill(accumulator.paid + value.paid)

    def get_result(self, accumulator):
        return tuple(accumulator)

    def merge(self, a, b):
        return bill(a.paid + b.paid)


def last_bill(one, other):
    assert one[1] == other[1] == 100
    return bill(one.paid + other.paid)


class Keeps(KeyedProcessFunction):
    def open(self, runtime_context):
        self.value = runtime_context.get_state(ValueStateDescriptor("value", BILL))
        self.list = runtime_context.get_list_state(ListStateDescriptor("list", BILL))
        self.map = runtime_context.get_map_state(MapStateDescriptor("map", BILL, NESTED))
        self.reducing = runtime_context.get_reducing_state(ReducingStateDescriptor("reducing", last_bill, BILL))
        self.aggregating = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("aggregating", LastBill(), BILL)
        )

    def process_element(self, value, ctx):
        self.value.update(bill(value))
        self.list.add(bill(value))
        self.map.put(bill(1), Row(bills=[bill(value)], k=value))
        self.reducing.add(bill(value))
        self.aggregating.add(bill(value))
        if value == 2:
            yield "value", tuple(self.value.value())
            yield "list", [tuple(row) for row in self.list.get()]
            yield "map", [(tuple(key), tuple(row.bills[0]), row[0]) for key, row in self.map.items()]
            yield "get", self.map.get(Row(paid=1, owed=100)).k
            yield "reducing", tuple(self.reducing.get())
            yield "aggregating", self.aggregating.get()


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_states_hold_rows_in_the_order_of_their_types(backend: str) -> None:
    """A2: as PyFlink's serializers of state write them."""
    env = local_environment(state__backend__type=backend)
    assert dict(collect(env.from_collection([1, 2]).key_by(lambda n: 0).process(Keeps()))) == {
        "value": (2, 100),
        "list": [(1, 100), (2, 100)],
        "map": [((1, 100), (2, 100), 2)],
        "get": 2,
        "reducing": (3, 100),
        "aggregating": (3, 100),
    }


BILLS = MapStateDescriptor("bills", INT, BILL)


class Rules(BroadcastProcessFunction):
    def process_element(self, value, ctx):
        return []

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(BILLS).put(value, bill(value))
        yield tuple(ctx.get_broadcast_state(BILLS).get(value))


def test_broadcast_states_hold_rows_in_the_order_of_their_types() -> None:
    """A2: the values, as those of keyed states."""
    env = local_environment()
    rules = env.from_collection([1]).broadcast(BILLS)
    assert collect(env.from_collection([0]).connect(rules).process(Rules())) == [(1, 100)]
