"""The types of columns: what they are called, when they are the same, and what they refuse."""

import copy
import pickle

import pytest

from penstock.base.errors import WrongTypeError, WrongValueError
from penstock.table.types import DataType, DataTypes


@pytest.mark.parametrize(
    ("data_type", "text"),
    [
        (DataTypes.NULL(), "NULL"),
        (DataTypes.CHAR(3), "CHAR(3)"),
        (DataTypes.VARCHAR(3, False), "VARCHAR(3) NOT NULL"),
        (DataTypes.STRING(), "STRING"),
        (DataTypes.VARBINARY(2), "VARBINARY(2)"),
        (DataTypes.BYTES(), "BYTES"),
        (DataTypes.BINARY(2), "BINARY(2)"),
        (DataTypes.BOOLEAN(), "BOOLEAN"),
        (DataTypes.DECIMAL(10, 2), "DECIMAL(10, 2)"),
        (DataTypes.TINYINT(), "TINYINT"),
        (DataTypes.SMALLINT(), "SMALLINT"),
        (DataTypes.INT(), "INT"),
        (DataTypes.BIGINT().not_null(), "BIGINT NOT NULL"),
        (DataTypes.FLOAT(), "FLOAT"),
        (DataTypes.DOUBLE(False).nullable(), "DOUBLE"),
        (DataTypes.DATE(), "DATE"),
        (DataTypes.TIME(), "TIME(0)"),
        (DataTypes.TIMESTAMP(), "TIMESTAMP(6)"),
        (DataTypes.TIMESTAMP_LTZ(3), "TIMESTAMP_LTZ(3)"),
        (DataTypes.TIMESTAMP_WITH_LOCAL_TIME_ZONE(), "TIMESTAMP_LTZ(6)"),
        (DataTypes.ARRAY(DataTypes.INT(False)), "ARRAY<INT NOT NULL>"),
        (DataTypes.MULTISET(DataTypes.INT()), "MULTISET<INT>"),
        (DataTypes.MAP(DataTypes.INT(), DataTypes.STRING()), "MAP<INT, STRING>"),
        (DataTypes.LIST_VIEW(DataTypes.INT()), "LIST_VIEW<INT>"),
        (DataTypes.MAP_VIEW(DataTypes.INT(), DataTypes.INT()), "MAP_VIEW<INT, INT>"),
        (
            DataTypes.ROW([DataTypes.FIELD("a`b", DataTypes.INT(), "it's"), DataTypes.FIELD("c", DataTypes.DATE())]),
            "ROW<`a``b` INT 'it''s', `c` DATE>",
        ),
        (DataTypes.ROW([DataTypes.INT(), DataTypes.DATE()]), "ROW<`f0` INT, `f1` DATE>"),
        (DataTypes.INTERVAL(DataTypes.YEAR(4)), "INTERVAL YEAR(4)"),
        (DataTypes.INTERVAL(DataTypes.YEAR(), DataTypes.MONTH()), "INTERVAL YEAR(2) TO MONTH"),
        (DataTypes.INTERVAL(DataTypes.MONTH()), "INTERVAL MONTH"),
        (DataTypes.INTERVAL(DataTypes.DAY(3), DataTypes.SECOND(0)), "INTERVAL DAY(3) TO SECOND(0)"),
        (DataTypes.INTERVAL(DataTypes.HOUR(), DataTypes.MINUTE()), "INTERVAL HOUR TO MINUTE"),
    ],
)
def test_what_sql_calls_a_type(data_type: DataType, text: str) -> None:
    assert str(data_type) == text
    assert pickle.loads(pickle.dumps(data_type)) == copy.deepcopy(data_type) == data_type


def test_types_are_values() -> None:
    """Also as keys."""
    one, other = DataTypes.ARRAY(DataTypes.INT()), DataTypes.ARRAY(DataTypes.INT())
    assert one == other
    assert len({one, other, one.not_null(), DataTypes.ARRAY(DataTypes.BIGINT())}) == 3
    assert one != DataTypes.MULTISET(DataTypes.INT())
    assert [str(part) for part in DataTypes.MAP(DataTypes.INT(), one).children()] == ["INT", "ARRAY<INT>"]


def test_a_type_without_null_leaves_the_other_as_it_is() -> None:
    with_null = DataTypes.INT()
    assert not with_null.not_null().is_nullable
    assert with_null.is_nullable
    assert with_null.nullable() is with_null
    assert with_null.type_name() == "INT"


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: DataTypes.DECIMAL(39, 0), "the precision of DECIMAL must be 1 to 38, not 39"),
        (lambda: DataTypes.DECIMAL(3, 4), "the scale of DECIMAL must be 0 to 3, not 4"),
        (lambda: DataTypes.TIMESTAMP(10), "the precision of TIMESTAMP must be 0 to 9, not 10"),
        (lambda: DataTypes.VARCHAR(0), "the length of VARCHAR must be 1 to 2147483647, not 0"),
        (lambda: DataTypes.INTERVAL(DataTypes.DAY(), DataTypes.MONTH()), "there is no interval DAY TO MONTH"),
    ],
)
def test_what_a_type_refuses(make, error: str) -> None:
    with pytest.raises(WrongValueError, match=error.replace("(", r"\(")):
        make()


def test_a_field_needs_a_type() -> None:
    with pytest.raises(WrongTypeError, match="the type of field 'a' must be one of DataTypes, not 'INT'"):
        DataTypes.FIELD("a", "INT")  # type: ignore[arg-type]


def test_a_row_type_is_a_sequence_of_fields() -> None:
    """By place, by name, and in slices; fields can be added to it, as in PyFlink."""
    row = DataTypes.ROW([DataTypes.FIELD("a", DataTypes.INT())]).add("b", DataTypes.STRING())
    row.add(DataTypes.FIELD("c", DataTypes.DATE()))
    assert [field.name for field in row] == ["a", "b", "c"]
    assert len(row) == 3
    assert row["b"].data_type == row[1].data_type == DataTypes.STRING()
    assert row[1:] == DataTypes.ROW([row[1], row[2]])
    assert DataTypes.ROW([])
    with pytest.raises(KeyError, match="No RowField named d"):
        row["d"]
    with pytest.raises(ValueError, match="Must specify DataType"):
        row.add("d")
