"""Declared state under another declaration: what can become what, and what is said when it cannot (H4)."""

import dataclasses
import decimal
import re
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.state.stateful import harness, read, written

from penstock.base.typeinfo import BasicType, BasicTypeInfo
from penstock.common import Row, Types
from penstock.runtime.operators.base import UserCodeError
from penstock.state.backend import HeapKeyedStateBackend
from penstock.state.errors import StateError
from penstock.state.schema import (
    Incompatible,
    StateSchema,
    evolve,
    format_type_node,
    schema_from_json,
    to_state_schema,
    to_type_node,
)
from penstock.state.states import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.storage.metadata import decode_metadata


def becomes(old, new, value):
    """A value of one declared type, read under another."""
    snapshot = written(ValueStateDescriptor("s", old), lambda s, v: s.update(v), [("k", value)])
    (found,) = read(ValueStateDescriptor("s", new), lambda s, _: s.value(), ["k"], snapshot)
    return found


def refused(old, new, value=None):
    """What is said when a state of one declaration is opened under another."""
    work = {"list": lambda s, v: s.add(v), "map": lambda s, v: s.put("m", v)}.get(old.kind, lambda s, v: s.update(v))
    snapshot = written(old, work, [("k", value)])
    run = harness(new, None, snapshot, name="Count visits")
    with pytest.raises(UserCodeError) as error:
        run.open()
    return str(error.value.__cause__)


def row(**fields):
    return Types.ROW_NAMED(list(fields), list(fields.values()))


# --- rows -------------------------------------------------------------------------------------------------------------

AB = row(a=Types.INT(), b=Types.STRING())


@pytest.mark.usefixtures("each_backend")
@pytest.mark.parametrize(
    ("new", "expected"),
    [
        (row(a=Types.INT(), b=Types.STRING(), c=Types.LONG()), Row(a=1, b="x", c=None)),
        (row(c=Types.LONG(), a=Types.INT(), b=Types.STRING()), Row(c=None, a=1, b="x")),
        (row(b=Types.STRING()), Row(b="x")),
        (row(b=Types.STRING(), a=Types.INT()), Row(b="x", a=1)),
        (row(a=Types.LONG(), b=Types.STRING()), Row(a=1, b="x")),
        (row(a=Types.DOUBLE(), d=Types.BOOLEAN()), Row(a=1.0, d=None)),
    ],
    ids=["gains", "gains ahead", "loses", "reordered", "widened", "all at once"],
)
def test_rows(new, expected):
    """H4: a row gains fields (None), loses fields, and is reordered by name; fields may widen."""
    assert becomes(AB, new, Row(a=1, b="x")) == expected


@pytest.mark.usefixtures("each_backend")
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Row(1, "x"), Row("x", None)),
        ((1, "x"), ("x", None)),
        ([1, "x"], ["x", None]),
        ({"a": 1, "b": "x"}, {"b": "x", "c": None}),
        ({"a": 1}, {"b": None, "c": None}),
    ],
    ids=["row without names", "tuple", "list", "dict", "dict with a gap"],
)
def test_whatever_stands_for_a_row_stays_what_it_is(value, expected):
    """H4: values that a row type accepts evolve as rows do, and keep their own form."""
    assert becomes(AB, row(b=Types.STRING(), c=Types.INT()), value) == expected


@pytest.mark.usefixtures("each_backend")
def test_rows_without_names_go_by_position():
    """H4: the names of their fields are f0, f1 and so on."""
    assert becomes(Types.ROW([Types.INT()]), Types.ROW([Types.LONG(), Types.STRING()]), Row(1)) == Row(1, None)


@pytest.mark.usefixtures("each_backend")
def test_nested_rows_evolve():
    """H4: what holds for a type holds for it as a field, an element, or a value of a map."""
    old = row(r=AB, rs=Types.LIST(AB), m=Types.MAP(Types.STRING(), AB))
    new_inner = row(b=Types.STRING(), n=Types.INT())
    new = row(r=new_inner, rs=Types.LIST(new_inner), m=Types.MAP(Types.STRING(), new_inner))
    value = Row(r=Row(a=1, b="x"), rs=[Row(a=2, b="y")], m={"k": Row(a=3, b="z"), "none": None})
    made = Row(r=Row(b="x", n=None), rs=[Row(b="y", n=None)], m={"k": Row(b="z", n=None), "none": None})
    assert becomes(old, new, value) == made


KINDS = [
    (ListStateDescriptor, lambda s, v: s.add(v), lambda s: list(s.get())),
    (lambda n, t: MapStateDescriptor(n, Types.STRING(), t), lambda s, v: s.put("m", v), lambda s: list(s.values())),
    (lambda n, t: ReducingStateDescriptor(n, lambda a, b: b, t), lambda s, v: s.add(v), lambda s: [s.get()]),
]


@pytest.mark.usefixtures("each_backend")
@pytest.mark.parametrize(("make", "write", "see"), KINDS, ids=["list", "map", "reducing"])
def test_every_kind_of_state_evolves(make, write, see):
    """H4: items of lists, values of maps and folded values evolve as values do."""
    snapshot = written(make("s", AB), write, [("k", Row(a=1, b="x"))])
    (found,) = read(make("s", row(b=Types.STRING(), c=Types.INT())), lambda s, _: see(s), ["k"], snapshot)
    assert found == [Row(b="x", c=None)]


# --- numbers ----------------------------------------------------------------------------------------------------------

WIDER = {
    "BYTE": ["SHORT", "INT", "LONG", "BIG_INT", "BIG_DEC", "FLOAT", "DOUBLE"],
    "SHORT": ["INT", "LONG", "BIG_INT", "BIG_DEC", "FLOAT", "DOUBLE"],
    "INT": ["LONG", "BIG_INT", "BIG_DEC", "DOUBLE"],
    "LONG": ["BIG_INT", "BIG_DEC"],
    "BIG_INT": ["BIG_DEC"],
    "FLOAT": ["DOUBLE"],
    "CHAR": ["STRING"],
}
BASIC = [basic.name for basic in BasicType]


@pytest.mark.parametrize("old", BASIC)
@pytest.mark.parametrize("new", BASIC)
def test_basic_types(old, new):
    """H4: a number becomes another only where no value of its type can change."""
    if new == old or new in WIDER.get(old, ()):
        evolve(old, BasicTypeInfo(BasicType[new]), {})
    else:
        with pytest.raises(Incompatible, match="cannot become"):
            evolve(old, BasicTypeInfo(BasicType[new]), {})


BITS = {"BYTE": 8, "SHORT": 16, "INT": 32, "LONG": 64, "BIG_INT": 100}


@given(st.data(), st.sampled_from([(old, new) for old in BITS for new in WIDER[old]]))
def test_widening_changes_no_value(data, pair):
    """H4: a widened number equals what it was, and is of its new type."""
    old, new = pair
    value = data.draw(st.integers(-(1 << BITS[old] - 1), (1 << BITS[old] - 1) - 1))
    target = BasicTypeInfo(BasicType[new])
    convert = evolve(old, target, {})
    made = value if convert is None else convert(value)
    assert made == value
    assert target.accepts(made)
    assert type(made) is {"FLOAT": float, "DOUBLE": float, "BIG_DEC": decimal.Decimal}.get(new, int)


def types(depth=2):
    basic = st.sampled_from([Types.INT(), Types.STRING(), Types.DOUBLE(), Types.SQL_DATE(), Types.PICKLED_BYTE_ARRAY()])
    return st.recursive(
        basic,
        lambda inner: st.one_of(
            st.dictionaries(st.sampled_from("abcd"), inner, min_size=1, max_size=3).map(lambda f: row(**f)),
            st.lists(inner, min_size=1, max_size=3).map(Types.TUPLE),
            inner.map(Types.LIST),
            inner.map(Types.OBJECT_ARRAY),
            inner.map(lambda t: Types.MAP(Types.STRING(), t)),
        ),
        max_leaves=6,
    )


@given(types())
def test_a_type_becomes_itself_and_its_schema_reads_back(info):
    """H4: the same declaration never converts anything, and a schema survives its text."""
    assert evolve(to_type_node(info), info, {}) is None
    schema = StateSchema("value", None, to_type_node(info))
    assert schema_from_json(schema.to_json()) == schema
    assert format_type_node(to_type_node(info))


@given(types(), types())
def test_whether_types_fit_is_always_said(old, new):
    """H4: any two types fit or do not; nothing else is ever raised."""
    try:
        evolve(to_type_node(old), new, {})
    except Incompatible as error:
        assert str(error)  # noqa: PT017 - either outcome is right


# --- what does not fit ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("each_backend")
def test_the_error_says_all_there_is_to_know():
    """H4: operator, state, both types as Flink writes them, what is wrong, and what to do."""
    text = refused(
        ValueStateDescriptor("visits", AB),
        ValueStateDescriptor("visits", row(a=Types.STRING(), b=Types.STRING())),
        Row(a=1, b="x"),
    )
    assert text.startswith("Count visits: state 'visits' was written as ValueState<ROW<a INT, b STRING>> and is now")
    assert "ValueState<ROW<a STRING, b STRING>>" in text
    assert "field a: INT cannot become STRING" in text
    assert "another name" in text


@pytest.mark.usefixtures("each_backend")
@pytest.mark.parametrize(
    ("old", "new", "value", "reason"),
    [
        (Types.TUPLE([Types.INT()]), Types.TUPLE([Types.INT(), Types.INT()]), (1,), "a tuple of 1 fields"),
        (Types.MAP(Types.INT(), Types.INT()), Types.MAP(Types.LONG(), Types.INT()), {1: 1}, "keys may not change"),
        (Types.LIST(Types.LONG()), Types.LIST(Types.INT()), [1], "BIGINT cannot become INT"),
        (Types.LIST(Types.INT()), Types.OBJECT_ARRAY(Types.INT()), [1], "LIST<INT> cannot become OBJECT_ARRAY<INT>"),
        (None, Types.INT(), "x", "nothing was declared, and a value of type str does not fit"),
        (
            Types.PRIMITIVE_ARRAY(Types.BYTE()),
            Types.PRIMITIVE_ARRAY(Types.DOUBLE()),
            b"x",
            "an array of bytes cannot become",
        ),
    ],
)
def test_what_does_not_fit(old, new, value, reason):
    """H4: each rule says why it was broken."""
    assert reason in refused(ValueStateDescriptor("s", old), ValueStateDescriptor("s", new), value)


@pytest.mark.usefixtures("each_backend")
def test_the_keys_of_map_state_may_not_change():
    """H4: a key that is looked up must be the key that was stored."""
    old, new = (MapStateDescriptor("s", key, Types.INT()) for key in (Types.STRING(), Types.BIG_DEC()))
    assert re.search("keys of a map may not change: STRING, BIG_DEC", refused(old, new, 1))


@pytest.mark.usefixtures("each_backend")
def test_the_kind_of_state_may_not_change():
    """H4: a value does not become a list, not even after a restore."""
    text = refused(ValueStateDescriptor("s", Types.INT()), ListStateDescriptor("s", Types.INT()), 1)
    assert "was written as ValueState<INT> and is now declared as ListState<INT>" in text


def test_one_name_has_one_type_within_a_program():
    """D1: two declarations of one state must agree."""
    backend = HeapKeyedStateBackend(128, "Op")
    backend.value_state(ValueStateDescriptor("s", Types.INT()))
    backend.value_state(ValueStateDescriptor("s", Types.INT()))
    with pytest.raises(StateError, match=r"ValueState<INT> and now as ValueState<STRING>; give the two"):
        backend.value_state(ValueStateDescriptor("s", Types.STRING()))


# --- declarations that come and go ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("each_backend")
def test_a_type_may_be_declared_later():
    """H4: values that were pickled without a declaration are checked, one by one, and stay what they are."""
    assert becomes(None, Types.INT(), 5) == 5
    assert becomes(row(a=Types.PICKLED_BYTE_ARRAY()), row(a=Types.INT()), Row(a=5)) == Row(a=5)


@pytest.mark.usefixtures("each_backend")
def test_a_declaration_may_be_dropped():
    """H4: without a declaration anything may be stored, so what is there fits."""
    assert becomes(Types.INT(), None, 5) == 5


def handles(snapshot):
    (subtask,) = decode_metadata(snapshot, "a snapshot").operators[0].subtasks.values()
    return subtask.keyed["s"]


def test_a_snapshot_carries_the_declaration():
    """H3: the schema lies in the checkpoint's metadata."""
    snapshot = written(ValueStateDescriptor("s", AB), lambda s, v: s.update(v), [("k", Row(a=1, b="x"))])
    (handle,) = handles(snapshot)
    assert handle.schema == '{"kind": "value", "value": {"ROW": [["a", "INT"], ["b", "STRING"]]}}'


def test_state_that_no_longer_is_declared_keeps_its_schema():
    """H4: a program that does not open a state passes it on as it was."""
    snapshot = written(ValueStateDescriptor("s", Types.INT()), lambda s, v: s.update(v), [("k", 1)])
    with harness(ValueStateDescriptor("other"), lambda s, v: s.update(v), snapshot) as run:
        run.process(("k", 1))
        passed_on = run.snapshot(2)
    assert [h.schema for h in handles(passed_on)] == ['{"kind": "value", "value": "INT"}']
    assert "INT cannot become STRING" in _error_of(ValueStateDescriptor("s", Types.STRING()), passed_on)


def _error_of(descriptor, snapshot):
    with pytest.raises(UserCodeError) as error:
        harness(descriptor, None, snapshot).open()
    return str(error.value.__cause__)


def test_converted_state_is_written_whole_then_by_changes():
    """G7, H4: the first snapshot after an evolution builds on no file of the old type; later ones build on it."""
    snapshot = written(
        ValueStateDescriptor("s", AB), lambda s, v: s.update(v), [(k, Row(a=k, b="x")) for k in range(50)]
    )
    new = row(b=Types.STRING(), n=Types.INT())
    with harness(ValueStateDescriptor("s", new), lambda s, v: s.update(v), snapshot) as run:
        first = run.snapshot(2)
        run.notify_complete(2)
        run.process((7, Row(b="y", n=1)))
        second = run.snapshot(3)
    ((one,), (two,)) = (handles(first)[0].files, handles(second)[0].files[:1])
    assert one == two
    assert len(handles(second)[0].files) == 2
    found = read(ValueStateDescriptor("s", new), lambda s, _: s.value(), [6, 7], second)
    assert found == [Row(b="x", n=None), Row(b="y", n=1)]


def test_evolution_and_rescaling_at_once():
    """D4, H4: two subtasks read what one wrote, each under the new type."""
    keys = list(range(20))
    snapshot = written(ValueStateDescriptor("s", AB), lambda s, v: s.update(v), [(k, Row(a=k, b="x")) for k in keys])
    found = []
    for subtask in range(2):
        new = ValueStateDescriptor("s", row(a=Types.LONG()))
        with harness(new, lambda s, _: s.value(), snapshot, parallelism=2, subtask=subtask) as run:
            run.process_batch([(k, None) for k in keys])
            found += [value for value in run.values if value is not None]
    assert sorted(value.a for value in found) == keys


# --- declared classes -------------------------------------------------------------------------------------------------


class Point(NamedTuple):
    x: int
    label: str | None = None


@dataclasses.dataclass
class Order:
    id: str
    points: list[Point]
    parent: "Order | None" = None
    extra: Any = None


def test_the_schema_of_a_class_is_its_fields():
    """H4: annotations become types where they can; a class within itself, and anything else, is pickled."""
    schema = to_state_schema(AggregatingStateDescriptor("s", None, Types.CLASS(Order)))
    assert str(schema) == (
        f"AggregatingState<{__name__}:Order<id STRING, points LIST<{__name__}:Point<x BIG_INT, label STRING>>, "
        "parent PICKLED, extra PICKLED>>"
    )
    assert schema_from_json(schema.to_json()).classes() == {
        f"{__name__}:Order": ("id", "points", "parent", "extra"),
        f"{__name__}:Point": ("x", "label"),
    }


def test_only_classes_with_fields_can_be_declared():
    """H4: other classes have no fields to evolve."""
    with pytest.raises(TypeError, match="a dataclass or a NamedTuple"):
        Types.CLASS(dict)
