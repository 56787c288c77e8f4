"""A3: a table that is read as it was declared keeps its whole schema, as in Flink 2.3; a query and a view do not."""

from __future__ import annotations

import pytest

from penstock.common import Types
from penstock.datastream import StreamExecutionEnvironment
from penstock.table import (
    DataTypes,
    EnvironmentSettings,
    Schema,
    StreamTableEnvironment,
    TableDescriptor,
    TableEnvironment,
)
from penstock.table.table import Table

DDL = """
    CREATE TABLE readings (
        id BIGINT, note STRING, ts TIMESTAMP(3), twice AS note || note, seen AS PROCTIME(),
        WATERMARK FOR ts AS ts - INTERVAL '1' SECOND, PRIMARY KEY (id) NOT ENFORCED
    ) WITH ('connector' = 'datagen')
"""
WHOLE = """(
  `id` BIGINT NOT NULL,
  `note` STRING,
  `ts` TIMESTAMP(3) *ROWTIME*,
  `twice` STRING AS (`note` || `note`),
  `seen` TIMESTAMP_LTZ(3) NOT NULL *PROCTIME* AS PROCTIME(),
  WATERMARK FOR `ts`: TIMESTAMP(3) AS (`ts` - INTERVAL '1' SECOND),
  CONSTRAINT `PK_id` PRIMARY KEY (`id`) NOT ENFORCED
)"""
COLUMNS = """(
  `id` BIGINT NOT NULL,
  `note` STRING,
  `ts` TIMESTAMP(3) *ROWTIME*,
  `twice` STRING,
  `seen` TIMESTAMP_LTZ(3) NOT NULL *PROCTIME*
)"""


@pytest.fixture
def environment() -> TableEnvironment:
    return TableEnvironment.create(EnvironmentSettings.in_streaming_mode())


def test_a_table_of_a_catalog_keeps_its_schema(environment: TableEnvironment) -> None:
    environment.execute_sql(DDL)
    schema = environment.from_path("readings").get_resolved_schema()
    assert str(schema) == WHOLE
    key = schema.get_primary_key()
    assert key is not None
    assert key.columns == ("id",)
    assert [mark.rowtime_attribute for mark in schema.get_watermark_specs()] == ["ts"]


@pytest.mark.parametrize("query", ["SELECT * FROM readings", "SELECT * FROM seen_readings"])
def test_a_query_and_a_view_have_columns_only(environment: TableEnvironment, query: str) -> None:
    environment.execute_sql(DDL)
    environment.execute_sql("CREATE VIEW seen_readings AS SELECT * FROM readings")
    assert str(environment.sql_query(query).get_resolved_schema()) == COLUMNS
    assert str(environment.from_path("seen_readings").get_resolved_schema()) == COLUMNS


def test_a_method_of_a_table_makes_a_query(environment: TableEnvironment) -> None:
    environment.execute_sql(DDL)
    limited = environment.from_path("readings").limit(3)
    assert str(limited.get_resolved_schema()) == COLUMNS


def test_a_table_of_a_descriptor_keeps_its_schema(environment: TableEnvironment) -> None:
    schema = Schema.new_builder().column("id", DataTypes.INT().not_null()).primary_key("id").build()
    descriptor = TableDescriptor.for_connector("datagen").schema(schema).build()
    table = environment.from_descriptor(descriptor)
    assert "CONSTRAINT `PK_id` PRIMARY KEY (`id`) NOT ENFORCED" in str(table.get_resolved_schema())


def read_stream(schema: Schema | None) -> Table:
    env = StreamExecutionEnvironment.get_execution_environment()
    row = Types.ROW_NAMED(["id", "note"], [Types.INT(), Types.STRING()])
    t_env = StreamTableEnvironment.create(env)
    stream = env.from_collection([(1, "a")], row)
    return t_env.from_data_stream(stream) if schema is None else t_env.from_data_stream(stream, schema)


def test_a_table_of_a_stream_keeps_its_schema_in_its_order() -> None:
    builder = Schema.new_builder().column("note", "STRING").column("id", "INT NOT NULL")
    builder = builder.column_by_expression("ts", "TO_TIMESTAMP_LTZ(id, 3)").watermark("ts", "ts - INTERVAL '5' SECOND")
    assert str(read_stream(builder.primary_key("id").build()).get_resolved_schema()) == (
        "(\n"
        "  `note` STRING,\n"
        "  `id` INT NOT NULL,\n"
        "  `ts` TIMESTAMP_LTZ(3) *ROWTIME* AS TO_TIMESTAMP_LTZ(`id`, 3),\n"
        "  WATERMARK FOR `ts`: TIMESTAMP_LTZ(3) AS (`ts` - INTERVAL '5' SECOND),\n"
        "  CONSTRAINT `PK_id` PRIMARY KEY (`id`) NOT ENFORCED\n"
        ")"
    )


def test_a_stream_without_a_schema_has_its_fields() -> None:
    assert str(read_stream(None).get_resolved_schema()) == "(\n  `id` INT,\n  `note` STRING\n)"


def test_explain_names_the_details_that_it_takes(environment: TableEnvironment) -> None:
    environment.execute_sql(DDL)
    with pytest.raises(TypeError, match=r"members of ExplainDetail \(ExplainDetail\..*, not 'CHANGELOG_MODE'"):
        environment.from_path("readings").explain("CHANGELOG_MODE")
