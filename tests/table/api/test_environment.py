"""`TableEnvironment` and what it is made with."""

import datetime
import decimal

import pandas
import pytest
from tests.table.api.recording import Recorder, environment

from penstock.codecs.arrow_columns import NULLABLE_KEY
from penstock.common import ConfigOptions, Configuration, Row, RowKind
from penstock.datastream import StreamExecutionEnvironment
from penstock.sql.catalogs.catalog import CatalogDescriptor
from penstock.sql.data.errors import ValidationError
from penstock.sql.logical.nodes import ArrowRows, Scan
from penstock.table import (
    ChangelogMode,
    DataTypes,
    EnvironmentSettings,
    ExplainDetail,
    FormatDescriptor,
    Schema,
    StreamTableEnvironment,
    Table,
    TableConfig,
    TableDescriptor,
    TableEnvironment,
)
from penstock.table.udf import udf


def data_of(table: Table) -> ArrowRows:
    assert isinstance(table._plan, ArrowRows)
    return table._plan


def list_types(table: Table) -> list[str]:
    return [f"{column.name} {column.type}" for column in table._plan.schema]


# --- rows of the program ---------------------------------------------------------------------------------------------


def test_types_of_elements_are_found_out() -> None:
    row = (True, 1, 1.5, "a", b"b", decimal.Decimal("1.5"), datetime.date(2020, 1, 1), datetime.time(1), None)
    later = (None, 2, 2.5, "b", b"c", decimal.Decimal(2), datetime.date(2020, 1, 2), datetime.time(2), [1, None])
    table = environment().from_elements([row, later], ["yes", "n"])
    assert list_types(table) == [
        *("yes BOOLEAN", "n BIGINT", "_3 DOUBLE", "_4 STRING", "_5 BYTES", "_6 DECIMAL(38, 18)", "_7 DATE"),
        *("_8 TIME(0)", "_9 ARRAY<BIGINT>"),
    ]
    assert data_of(table).data.column("n").to_pylist() == [1, 2]
    assert data_of(table).data.column("_9").to_pylist() == [None, [1, None]]


def test_rows_and_dicts_bring_their_names() -> None:
    env = environment()
    assert list_types(env.from_elements([Row(a=1, b="x")])) == ["a BIGINT", "b STRING"]
    assert list_types(env.from_elements([{"b": "x", "a": {"k": 1.0}}])) == ["a MAP<STRING, DOUBLE>", "b STRING"]
    assert list_types(env.from_elements([(1, (2, "x"))])) == ["_1 BIGINT", "_2 ROW<`_1` BIGINT, `_2` STRING>"]


def test_elements_take_the_types_that_are_given() -> None:
    env = environment()
    schema = DataTypes.ROW(
        [
            DataTypes.FIELD("a", DataTypes.INT()),
            DataTypes.FIELD("t", DataTypes.TIMESTAMP(3)),
            DataTypes.FIELD("m", DataTypes.MAP(DataTypes.STRING(), DataTypes.INT())),
        ]
    )
    noon = datetime.datetime(2020, 1, 1, 12)
    table = env.from_elements([(1, noon, {"a": 1}), Row(m=None, t=None, a=2)], schema)
    assert list_types(table) == ["a INT", "t TIMESTAMP(3)", "m MAP<STRING, INT>"]
    assert data_of(table).data.to_pylist() == [
        {"a": 1, "t": noon, "m": [({NULLABLE_KEY: "a"}, 1)]},
        {"a": 2, "t": None, "m": None},
    ]
    assert data_of(env.from_elements([1, 2], DataTypes.INT())).data.to_pylist() == [{"value": 1}, {"value": 2}]


def test_datetimes_without_types_are_moments_in_the_zone_of_the_session() -> None:
    env = environment()
    env.get_config().set_local_timezone("America/New_York")
    table = env.from_elements([(datetime.datetime(2020, 7, 1, 8),)])
    assert list_types(table) == ["_1 TIMESTAMP_LTZ(6)"]
    assert data_of(table).data.column(0)[0].as_py() == datetime.datetime(2020, 7, 1, 12, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("elements", "schema", "message"),
    [
        ([], ["a"], "can not infer schema from empty data set"),
        ([(None,)], ["a"], "the type of column 'a' cannot be found out"),
        ([(1,), ("x",)], ["a"], "can not merge type BIGINT and STRING"),
        ([("x",)], DataTypes.ROW([DataTypes.FIELD("a", DataTypes.INT())]), "field a: INT can not accept object 'x'"),
        ([(300,)], DataTypes.ROW([DataTypes.FIELD("a", DataTypes.TINYINT())]), "TINYINT out of range, got: 300"),
        *(
            ([(value,)], DataTypes.ROW([DataTypes.FIELD("a", kind)]), message)
            for value, kind, message in (
                ("abcdef", DataTypes.VARCHAR(3), r"field a: length of object \(abcdef\) of VARCHAR\(3\) exceeds: 3"),
                ("a", DataTypes.CHAR(3), r"field a: length of object \(a\) of CHAR\(3\) is not: 3"),
                ("abcd", DataTypes.CHAR(3), r"length of object \(abcd\) of CHAR\(3\) is not: 3"),
                (b"abc", DataTypes.BINARY(2), r"length of object \(b'abc'\) of BINARY\(2\) is not: 2"),
                (b"abc", DataTypes.VARBINARY(2), r"length of object \(b'abc'\) of VARBINARY\(2\) exceeds: 2"),
                (["ok", "long"], DataTypes.ARRAY(DataTypes.VARCHAR(2)), "element in array a: length of object"),
                ({"k": "long"}, DataTypes.MAP(DataTypes.CHAR(1), DataTypes.VARCHAR(2)), "value of map a: length of"),
                (("long",), DataTypes.ROW([DataTypes.FIELD("b", DataTypes.CHAR(2))]), "field a.b: length of object"),
            )
        ),
        (["abcdef"], DataTypes.VARCHAR(3), r"exceeds: 3"),
        ([(None,)], DataTypes.ROW([DataTypes.FIELD("a", DataTypes.INT(False))]), "is not nullable, but got None"),
        ([(1, 2)], DataTypes.ROW([DataTypes.FIELD("a", DataTypes.INT())]), r"Length of object \(2\)"),
        ([(1,)], "a", "schema should be RowType, list, tuple or None"),
    ],
)
def test_elements_that_do_not_fit_are_refused(elements: list, schema: object, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        environment().from_elements(elements, schema)  # type: ignore[arg-type]


def test_texts_and_bytes_of_the_right_length_stay_as_they_are() -> None:
    """K4: up to the length of VARCHAR and VARBINARY, and with just that of CHAR and BINARY; NULL has no length."""
    kinds = [DataTypes.VARCHAR(3), DataTypes.CHAR(3), DataTypes.VARBINARY(2), DataTypes.BINARY(2), DataTypes.STRING()]
    schema = DataTypes.ROW([DataTypes.FIELD(f"c{place}", kind) for place, kind in enumerate(kinds)])
    rows = [("abc", "äöü", b"ab", b"ab", "x" * 99), ("", "abc", b"", b"ab", ""), (None,) * 5]
    found = data_of(environment().from_elements(rows, schema)).data.to_pylist()
    assert [tuple(one.values()) for one in found] == rows


def test_what_is_not_verified_is_converted() -> None:
    schema = DataTypes.ROW([DataTypes.FIELD("a", DataTypes.DOUBLE())])
    with pytest.raises(TypeError, match="DOUBLE can not accept object 1"):
        environment().from_elements([(1,)], schema)
    assert data_of(environment().from_elements([(1,)], schema, False)).data.to_pylist() == [{"a": 1.0}]


def test_data_frames_become_tables() -> None:
    frame = pandas.DataFrame({"a": [1, 2], "b": ["x", None], "t": pandas.to_datetime(["2020-01-01", "2020-01-02"])})
    env = environment()
    assert list_types(env.from_pandas(frame)) == ["a BIGINT", "b STRING", "t TIMESTAMP(9)"]
    assert list_types(env.from_pandas(frame, ["x", "y", "z"])) == ["x BIGINT", "y STRING", "z TIMESTAMP(9)"]
    typed = env.from_pandas(frame[["a"]], [DataTypes.INT()])
    assert list_types(typed) == ["a INT"]
    assert data_of(typed).data.to_pylist() == [{"a": 1}, {"a": 2}]
    with pytest.raises(ValueError, match="has 3 columns, and the schema 1"):
        env.from_pandas(frame, ["x"])
    with pytest.raises(TypeError, match=r"expected pandas\.DataFrame"):
        env.from_pandas([1])


# --- tables by their names -------------------------------------------------------------------------------------------


def test_tables_views_and_descriptors() -> None:
    env = environment()
    schema = Schema.new_builder().column("a", "INT").column_by_expression("b", "CAST(a AS STRING)").build()
    descriptor = (
        TableDescriptor.for_connector("kafka")
        .schema(schema)
        .option(ConfigOptions.key("rows").int_type().no_default_value(), 3)
        .format(FormatDescriptor.for_format("json").option("strict", True).build())
        .comment("x")
        .partitioned_by("a")
        .build()
    )
    assert descriptor.get_options() == {
        "connector": "kafka",
        "rows": "3",
        "format": "json",
        "json.strict": "true",
    }
    assert (descriptor.get_schema(), descriptor.get_comment(), descriptor.get_partition_keys()) == (schema, "x", ["a"])
    assert env.create_table("t", descriptor)
    assert not env.create_table("t", descriptor, True)
    env.create_temporary_table("`my table`", descriptor)
    assert list_types(env.from_path("default_database.t")) == ["a INT", "b STRING"]
    env.create_temporary_view("v", env.from_path("t"))
    assert list_types(env.sql_query("SELECT b FROM v")) == ["b STRING"]
    assert env.create_view("w", env.sql_query("SELECT a FROM v"))
    assert env.list_tables() == ["my table", "t", "v", "w"]
    assert env.list_views() == ["v", "w"]
    assert env.list_temporary_tables() == ["my table", "v"]
    assert env.list_temporary_views() == ["v"]
    nameless = env.from_descriptor(TableDescriptor.for_connector("x").schema(schema).build())
    assert isinstance(nameless._plan.inputs()[0], Scan)
    assert env.list_tables() == ["my table", "t", "v", "w"]
    assert env.drop_temporary_view("v")
    assert not env.drop_temporary_view("v")
    assert env.drop_temporary_table("`my table`")
    assert env.drop_view("w")
    assert env.drop_table("t")
    assert not env.drop_table("t")
    with pytest.raises(ValidationError, match="`t` was not found"):
        env.from_path("t")


def test_a_table_in_a_text_of_sql_has_a_name() -> None:
    env = environment()
    table = env.from_elements([(1,)], ["a"])
    assert list_types(env.sql_query(f"SELECT a FROM {table}")) == ["a BIGINT"]


def test_catalogs_databases_and_functions() -> None:
    env = environment()
    env.create_catalog("c", CatalogDescriptor.of("c", Configuration.from_dict({"type": "generic_in_memory"})))
    env.use_catalog("c")
    assert (env.get_current_catalog(), env.get_current_database()) == ("c", "default")
    assert (env.list_catalogs(), env.list_databases()) == (["c", "default_catalog"], ["default"])
    env.execute_sql("CREATE DATABASE d")
    env.use_database("d")
    env.create_temporary_system_function("f", udf(len, result_type="INT"))
    env.create_temporary_function("g", udf(len, result_type="INT"))
    assert env.list_user_defined_functions() == ["f", "g"]
    assert {"f", "g", "coalesce"} <= set(env.list_functions())
    assert env.drop_temporary_system_function("f")
    assert env.drop_temporary_function("g")
    assert not env.drop_function("g")


def test_only_queries_are_tables() -> None:
    with pytest.raises(ValidationError, match="only accepts a single SQL query"):
        environment().sql_query("SHOW TABLES")


def test_explain_sql_takes_details() -> None:
    env = environment(Recorder(), "CREATE TABLE t (a INT)")
    assert env.explain_sql("SELECT a FROM t", ExplainDetail.CHANGELOG_MODE).endswith("1 plans CHANGELOG_MODE")


# --- settings --------------------------------------------------------------------------------------------------------


def test_settings_name_the_first_catalog() -> None:
    config = Configuration.from_dict({"a": "b"})
    settings = (
        EnvironmentSettings.new_instance()
        .in_batch_mode()
        .with_built_in_catalog_name("c")
        .with_built_in_database_name("d")
        .with_configuration(config)
        .build()
    )
    env = TableEnvironment.create(settings)
    assert (env.get_current_catalog(), env.get_current_database()) == ("c", "d")
    assert env.get_config().get("a", None) == "b"
    assert not settings.is_streaming_mode()
    assert EnvironmentSettings.in_streaming_mode().is_streaming_mode()
    assert TableEnvironment.create(config).get_config().get("a", None) == "b"


def test_options_have_methods() -> None:
    config = TableConfig.get_default()
    config.set_local_timezone("GMT-03:00")
    config.set_idle_state_retention(datetime.timedelta(hours=1))
    config.set_python_executable("python3")
    assert config.get_local_timezone() == "GMT-03:00"
    assert config.get_idle_state_retention() == datetime.timedelta(hours=1)
    assert config.get_python_executable() == "python3"
    assert config.set("nobody.knows", 3).get("nobody.knows", None) == "3"
    assert config.get("missing", "x") == "x"
    with pytest.raises(ValueError, match="no time zone 'Mars'"):
        config.set_local_timezone("Mars")


def test_beside_streams_their_options_hold_too() -> None:
    streams = StreamExecutionEnvironment.get_execution_environment()
    streams.set_parallelism(4)
    env = StreamTableEnvironment.create(streams)
    assert env.get_config().get("parallelism.default", None) == "4"
    alone = StreamTableEnvironment.create(environment_settings=EnvironmentSettings.in_batch_mode())
    assert not alone.get_config().is_streaming()


def test_kinds_of_changelogs() -> None:
    assert ChangelogMode.insert_only().contains_only(RowKind.INSERT)
    assert not ChangelogMode.upsert().contains(RowKind.UPDATE_BEFORE)
    assert str(ChangelogMode.all()) == "[INSERT,UPDATE_BEFORE,UPDATE_AFTER,DELETE]"
