"""CREATE, ALTER, DROP, SHOW and DESCRIBE of models, as Flink 2.3 answers, and models in catalogs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import PenstockError
from penstock.sql.catalogs.file_catalog import FileCatalog
from penstock.sql.data.errors import ValidationError
from penstock.table import EnvironmentSettings, ModelDescriptor, Schema, TableEnvironment
from penstock.table.catalog import ObjectPath

MODEL = (
    "CREATE MODEL m INPUT (a INT COMMENT 'column a', b BIGINT NOT NULL) OUTPUT (prediction STRING) COMMENT 'my model' "
    "WITH ('provider' = 'openai', 'api-key' = 'secret123', 'task' = 'classification', 'max-tokens' = '12')"
)


@pytest.fixture
def t_env() -> TableEnvironment:
    return TableEnvironment.create(EnvironmentSettings.in_streaming_mode())


def rows(t_env: TableEnvironment, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in t_env.execute_sql(sql).collect()]


def names(t_env: TableEnvironment, sql: str = "SHOW MODELS") -> list[str]:
    return [name for (name,) in rows(t_env, sql)]


def test_a_model_is_described_by_its_columns(t_env: TableEnvironment) -> None:
    t_env.execute_sql(MODEL)
    expected = [
        ("a", "INT", True, True, "column a"),
        ("b", "BIGINT", False, True, None),
        ("prediction", "STRING", True, False, None),
    ]
    result = t_env.execute_sql("DESCRIBE MODEL m")
    assert result.get_table_schema().get_field_names() == ["name", "type", "null", "is input", "comment"]
    assert rows(t_env, "DESC MODEL m") == expected
    assert rows(t_env, "DESCRIBE MODEL EXTENDED m") == expected
    t_env.execute_sql("CREATE MODEL plain INPUT (a INT) OUTPUT (b ARRAY<FLOAT>) WITH ('provider' = 'x')")
    assert rows(t_env, "DESCRIBE MODEL plain") == [("a", "INT", True, True), ("b", "ARRAY<FLOAT>", True, False)]


def test_show_create_hides_secrets_and_no_numbers(t_env: TableEnvironment) -> None:
    t_env.execute_sql(MODEL)
    assert names(t_env, "SHOW CREATE MODEL m") == [
        "CREATE MODEL `default_catalog`.`default_database`.`m`\n"
        "INPUT (`a` INT COMMENT 'column a', `b` BIGINT NOT NULL)\n"
        "OUTPUT (`prediction` VARCHAR(2147483647))\n"
        "COMMENT 'my model'\n"
        "WITH (\n"
        "  'api-key' = '******',\n"
        "  'max-tokens' = '12',\n"
        "  'provider' = 'openai',\n"
        "  'task' = 'classification'\n"
        ")\n"
    ]
    t_env.execute_sql("CREATE TEMPORARY MODEL bare WITH ('provider' = 'x')")
    (text,) = names(t_env, "SHOW CREATE MODEL bare")
    expected = "CREATE TEMPORARY MODEL `default_catalog`.`default_database`.`bare`\nWITH (\n  'provider' = 'x'\n)\n"
    assert text == expected


def test_models_are_altered(t_env: TableEnvironment) -> None:
    t_env.execute_sql(MODEL)
    t_env.execute_sql("ALTER MODEL m SET ('provider' = 'other', 'API' = 'Z')")
    t_env.execute_sql("ALTER MODEL m RESET ('api-key', 'task', 'no such key')")
    (text,) = names(t_env, "SHOW CREATE MODEL m")
    assert "WITH (\n  'API' = 'Z',\n  'max-tokens' = '12',\n  'provider' = 'other'\n)" in text
    t_env.execute_sql("ALTER MODEL m RENAME TO default_catalog.default_database.n")
    t_env.execute_sql("ALTER MODEL IF EXISTS m RENAME TO o")
    t_env.execute_sql("ALTER MODEL IF EXISTS m SET ('a' = 'b')")
    assert names(t_env) == ["n"]


def test_a_temporary_model_hides_another(t_env: TableEnvironment) -> None:
    t_env.execute_sql(MODEL)
    t_env.execute_sql("CREATE TEMPORARY MODEL m INPUT (z INT) OUTPUT (y INT) WITH ('provider' = 'x')")
    t_env.execute_sql("CREATE TEMPORARY MODEL IF NOT EXISTS m INPUT (y INT) OUTPUT (y INT) WITH ('provider' = 'x')")
    assert rows(t_env, "DESCRIBE MODEL m")[0][0] == "z"
    assert t_env.list_temporary_models() == ["m"]
    with pytest.raises(ValidationError, match="is a temporary model"):
        t_env.execute_sql("ALTER MODEL m SET ('a' = 'b')")
    t_env.execute_sql("DROP TEMPORARY MODEL m")
    assert rows(t_env, "DESCRIBE MODEL m")[0][0] == "a"
    t_env.execute_sql("CREATE OR REPLACE MODEL m INPUT (w INT) OUTPUT (y INT) WITH ('provider' = 'x')")
    assert rows(t_env, "DESCRIBE MODEL m")[0][0] == "w"
    t_env.execute_sql("DROP MODEL m")
    t_env.execute_sql("DROP MODEL IF EXISTS m")
    t_env.execute_sql("DROP TEMPORARY MODEL IF EXISTS m")
    assert names(t_env) == []


def test_models_are_listed_by_place_and_pattern(t_env: TableEnvironment) -> None:
    for name in ("m1", "m2", "other"):
        t_env.execute_sql(f"CREATE MODEL {name} INPUT (a INT) OUTPUT (b INT) WITH ('provider' = 'x')")
    t_env.execute_sql("CREATE DATABASE d")
    t_env.execute_sql("CREATE MODEL d.inner1 INPUT (a INT) OUTPUT (b INT) WITH ('provider' = 'x')")
    assert names(t_env, "SHOW MODELS LIKE 'm%'") == ["m1", "m2"]
    assert names(t_env, "SHOW MODELS NOT LIKE 'm%'") == ["other"]
    assert names(t_env, "SHOW MODELS FROM d") == ["inner1"]
    assert names(t_env, "SHOW MODELS IN default_catalog.d LIKE 'x'") == []
    with pytest.raises(ValidationError, match="Database nodb does not exist"):
        t_env.execute_sql("SHOW MODELS FROM nodb")
    with pytest.raises(ValidationError, match="is not empty"):
        t_env.execute_sql("DROP DATABASE d")
    t_env.execute_sql("DROP DATABASE d CASCADE")


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (
            "CREATE MODEL m INPUT (a INT) OUTPUT (b INT) WITH ('provider' = 'x')",
            "Model default_database.m already exists",
        ),
        ("CREATE MODEL n INPUT (a INT) OUTPUT (b INT)", "Model property list can not be empty."),
        ("CREATE MODEL n OUTPUT (b INT) WITH ('provider' = 'x')", "Input column list can not be empty with non-empty"),
        ("CREATE MODEL n INPUT (b INT) WITH ('provider' = 'x')", "Output column list can not be empty with non-empty"),
        ("CREATE MODEL n INPUT (b INT, b INT) OUTPUT (c INT) WITH ('a' = 'x')", "Duplicate input column name: 'b'."),
        ("CREATE MODEL n INPUT (b INT) OUTPUT (c INT, c INT) WITH ('a' = 'x')", "Duplicate output column name: 'c'."),
        ("CREATE MODEL n INPUT (b INT, c AS b + 1) OUTPUT (c INT) WITH ('a' = 'x')", "can only be a physical column"),
        ("CREATE MODEL n INPUT (b INT METADATA) OUTPUT (c INT) WITH ('a' = 'x')", "can only be a physical column"),
        ("CREATE MODEL n WITH ('provider' = 'x') AS SELECT 1 AS b", "no provider trains models"),
        ("CREATE MODEL nodb.n INPUT (b INT) OUTPUT (c INT) WITH ('a' = 'x')", "Database nodb does not exist"),
        ("CREATE MODEL nocat.d.n INPUT (b INT) OUTPUT (c INT) WITH ('a' = 'x')", "Catalog nocat does not exist"),
        ("ALTER MODEL m SET ()", "ALTER MODEL SET does not support empty option."),
        ("ALTER MODEL m RESET ()", "ALTER MODEL RESET does not support empty key."),
        ("ALTER MODEL m RENAME TO m", "Model default_database.m already exists"),
        ("ALTER MODEL x9 SET ('a' = 'b')", "Model `default_catalog`.`default_database`.`x9` doesn't exist"),
        ("DROP MODEL x9", "Model with identifier 'default_catalog.default_database.x9' does not exist"),
        (
            "DROP TEMPORARY MODEL m",
            "Temporary model with identifier 'default_catalog.default_database.m' does not exist",
        ),
        ("DESCRIBE MODEL x9", "Model with the identifier 'default_catalog.default_database.x9' doesn't exist"),
        ("SHOW CREATE MODEL x9", "Could not execute SHOW CREATE MODEL. Model with identifier "),
    ],
)
def test_errors(t_env: TableEnvironment, sql: str, message: str) -> None:
    t_env.execute_sql(MODEL)
    t_env.execute_sql("CREATE MODEL IF NOT EXISTS m INPUT (a INT) OUTPUT (b INT) WITH ('provider' = 'x')")
    with pytest.raises(PenstockError) as error:
        t_env.execute_sql(sql)
    assert message in str(error.value)


def test_a_catalog_in_files_keeps_models(tmp_path: Path) -> None:
    catalog = FileCatalog("files", tmp_path)
    t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    t_env.register_catalog("files", catalog)
    t_env.use_catalog("files")
    t_env.execute_sql(MODEL)
    model = FileCatalog("again", tmp_path).get_model(ObjectPath("default", "m"))
    assert model == catalog.get_model(ObjectPath("default", "m"))
    assert model.get_options()["provider"] == "openai"
    t_env.execute_sql("ALTER MODEL m RENAME TO n")
    assert FileCatalog("again", tmp_path).list_models("default") == ["n"]
    t_env.execute_sql("DROP MODEL n")
    assert FileCatalog("again", tmp_path).list_models("default") == []
    column = Schema.new_builder().column("a", "INT").build()
    of_program = ModelDescriptor.for_provider(lambda rows: rows).input_schema(column).output_schema(column).build()
    with pytest.raises(ValidationError, match="no file can hold it"):
        t_env.create_model("n", of_program)
