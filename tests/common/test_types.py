"""Rows, type information and output tags."""

import copy
import datetime
import decimal
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import UnknownFieldError
from penstock.base.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation
from penstock.common import Instant, OutputTag, Row, RowKind, Types

VALUES = st.one_of(st.none(), st.booleans(), st.integers(), st.text())


def test_fields_are_read_by_name_attribute_and_position():
    row = Row(name="Alice", age=11)
    assert (row["name"], row.age, row[0], row[-1], row[:1]) == ("Alice", 11, "Alice", 11, ["Alice"])
    assert list(row) == ["Alice", 11]
    assert len(row) == 2
    assert 11 in row


def test_fields_of_a_row_without_names_are_called_as_in_types_row():
    row = Row("Alice", 11)
    assert (row.f0, row["f1"]) == ("Alice", 11)
    for name in ("f2", "f01", "f", "f-1", "g0"):
        assert not hasattr(row, name)
    assert not hasattr(Row(name="Alice"), "f0")
    assert Row(f1="Alice", f0=11).f1 == "Alice"


def test_a_row_of_names_makes_rows():
    person = Row("name", "age")
    assert person("Alice", 11) == Row(name="Alice", age=11)
    with pytest.raises(ValueError, match="has 2 fields, but was given 3"):
        person(1, 2, 3)


def test_print_shows_the_kind_and_repr_the_names():
    row = Row.of_kind(RowKind.UPDATE_AFTER, 1, None, True, [Row("x")])
    assert str(row) == "+U[1, null, true, [+I[x]]]"
    assert repr(Row(a=1)) == "Row(a=1)"
    assert repr(Row(1, "x")) == "<Row(1, 'x')>"


def test_an_unknown_name_is_both_a_key_error_and_a_value_error():
    for error in (KeyError, ValueError, UnknownFieldError):
        with pytest.raises(error, match="no field 'b'"):
            Row(a=1)["b"]
    with pytest.raises(AttributeError):
        _ = Row(a=1).b
    with pytest.raises(AttributeError):
        Row(a=1).b = 2  # type: ignore[attr-defined]


def test_a_row_may_be_changed_in_place():
    row = Row(a=1, b=2)
    row["a"], row[1] = 3, 4
    assert row == Row(a=3, b=4)
    row.set_field_names(["x", "y"])
    row.set_row_kind(RowKind.DELETE)
    assert row == Row.of_kind(RowKind.DELETE, x=3, y=4)
    assert row.get_fields_by_names(["y", "x"]) == [4, 3]


@pytest.mark.parametrize(
    ("kind", "sign"),
    [
        (RowKind.INSERT, "+I"),
        (RowKind.UPDATE_BEFORE, "-U"),
        (RowKind.UPDATE_AFTER, "+U"),
        (RowKind.DELETE, "-D"),
    ],
)
def test_a_row_is_of_a_kind_and_an_insert_unless_said(kind, sign):
    row = Row("a", 1)
    assert row.get_row_kind() is RowKind.INSERT
    row.set_row_kind(row_kind=kind)
    assert row.get_row_kind() is kind
    assert row == Row.of_kind(kind, "a", 1)
    assert str(row) == f"{sign}[a, 1]"
    assert Row.of_kind(row_kind=kind, name="a").as_dict() == {"name": "a"}
    maker = Row("name")
    maker.set_row_kind(kind)
    assert maker("a").get_row_kind() is kind


def test_as_dict_goes_into_nested_rows_only_when_asked():
    row = Row(key=1, value=[Row(a=2)])
    assert row.as_dict() == {"key": 1, "value": [Row(a=2)]}
    assert row.as_dict(recursive=True) == {"key": 1, "value": [{"a": 2}]}
    with pytest.raises(TypeError, match="without field names"):
        Row(1).as_dict()


def test_positional_and_named_values_do_not_mix():
    with pytest.raises(ValueError, match="not both"):
        Row(1, a=2)


@given(st.lists(VALUES), st.booleans(), st.sampled_from(RowKind), st.integers(2, pickle.HIGHEST_PROTOCOL))
def test_a_row_survives_pickle_and_copy(values, named, kind, protocol):
    row = Row.of_kind(kind, *values)
    if named:
        row.set_field_names([f"f{i}" for i in range(len(values))])
    for other in (pickle.loads(pickle.dumps(row, protocol)), copy.copy(row), copy.deepcopy(row)):
        assert other == row
        assert hash(other) == hash(row)
        assert repr(other) == repr(row)


def test_kind_and_names_count_for_equality():
    assert Row(1) != Row.of_kind(RowKind.DELETE, 1)
    assert Row(1) != Row(a=1)
    assert Row(1) != (1,)


@pytest.mark.parametrize(
    ("type_info", "good", "bad"),
    [
        (Types.STRING(), "x", 1),
        (Types.BYTE(), -128, 128),
        (Types.BOOLEAN(), True, 1),
        (Types.SHORT(), 32767, 32768),
        (Types.INT(), 2**31 - 1, 2**31),
        (Types.LONG(), -(2**63), True),
        (Types.FLOAT(), 1, "1"),
        (Types.DOUBLE(), 1.5, None),
        (Types.CHAR(), "x", "xy"),
        (Types.BIG_INT(), 10**40, 1.0),
        (Types.BIG_DEC(), decimal.Decimal(1), 1.0),
        (Types.INSTANT(), Instant(0, 0), 0),
        (Types.SQL_DATE(), datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1)),
        (Types.SQL_TIME(), datetime.time(1), "01:00"),
        (Types.SQL_TIMESTAMP(), datetime.datetime(2020, 1, 1), datetime.date(2020, 1, 1)),
        (Types.ROW([Types.INT()]), Row(None), Row("x")),
        (Types.ROW_NAMED(["a"], [Types.INT()]), {"a": 1}, {"b": 1}),
        (Types.TUPLE([Types.INT(), Types.STRING()]), (1, "x"), (1, None)),
        (Types.LIST(element_type_info=Types.INT()), [1], [None]),
        (Types.MAP(Types.STRING(), Types.INT()), {"a": None}, {1: 1}),
        (Types.BASIC_ARRAY(Types.STRING()), ["a", None], "a"),
        (Types.OBJECT_ARRAY(Types.ROW([Types.INT()])), [Row(1), None], [1]),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), b"x", [300]),
    ],
)
def test_a_type_is_a_value_that_knows_its_members(type_info, good, bad):
    assert type_info.accepts(good)
    assert not type_info.accepts(bad)
    again = eval(repr(type_info), {"Types": Types})
    assert again == type_info
    assert hash(again) == hash(type_info)
    assert pickle.loads(pickle.dumps(type_info)) == type_info
    assert type_info != Types.PICKLED_BYTE_ARRAY()
    assert Types.PICKLED_BYTE_ARRAY().accepts(bad)


def test_a_row_type_knows_its_fields():
    row_type = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])
    assert row_type.get_field_names() == ["id", "name"]
    assert row_type.get_field_types() == [Types.LONG(), Types.STRING()]
    assert row_type.get_field_index(field_name="name") == 1
    assert row_type.get_field_index("other") == -1
    assert str(row_type) == "RowTypeInfo(id: Long, name: String)"
    assert Types.ROW([Types.INT()]).get_field_names() == ["f0"]


def test_a_tuple_type_knows_its_fields():
    pair = TupleTypeInfo([Types.INT(), Types.STRING()])
    assert pair == Types.TUPLE(field_types=[Types.INT(), Types.STRING()])
    assert pair.get_field_types() == [Types.INT(), Types.STRING()]
    assert pair != Types.ROW([Types.INT(), Types.STRING()])
    assert RowTypeInfo(field_types=[Types.INT()], field_names=["n"]) == Types.ROW_NAMED(["n"], [Types.INT()])
    assert isinstance(pair, TypeInformation)


def test_senseless_types_are_refused():
    with pytest.raises(ValueError, match="must be distinct"):
        Types.ROW_NAMED(["a", "a"], [Types.INT(), Types.INT()])
    with pytest.raises(ValueError, match="1 field names for 2"):
        Types.ROW_NAMED(["a"], [Types.INT(), Types.INT()])
    with pytest.raises(TypeError, match="expected a TypeInformation"):
        Types.LIST(int)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="primitive type"):
        Types.PRIMITIVE_ARRAY(Types.STRING())
    with pytest.raises(TypeError, match="basic type"):
        Types.BASIC_ARRAY(Types.LIST(Types.INT()))


def test_output_tags_are_equal_by_name():
    assert OutputTag("late", Types.INT()) == OutputTag("late")
    assert len({OutputTag("late"), OutputTag("late", Types.INT())}) == 1
    assert pickle.loads(pickle.dumps(OutputTag("late", Types.INT()))).type_info == Types.INT()
    with pytest.raises(ValueError, match="empty"):
        OutputTag("")
