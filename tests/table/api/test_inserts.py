"""INSERT: which columns of a query go into which of a table."""

import pytest
from tests.table.api.recording import Recorder, environment, read_rows

from penstock.base.errors import UnsupportedError
from penstock.base.types import Row
from penstock.sql.data.errors import ValidationError
from penstock.table import DataTypes, Schema, TableDescriptor, TableEnvironment

SOURCE = "CREATE TABLE s (id BIGINT, name STRING, n INT NOT NULL)"
SINK = (
    "CREATE TABLE t (id BIGINT, twice AS CAST(id AS STRING), name STRING, dt STRING) PARTITIONED BY (dt) "
    "WITH ('connector' = 'print')"
)


@pytest.fixture(name="recorder")
def make_recorder() -> Recorder:
    return Recorder()


@pytest.fixture(name="env")
def make_environment(recorder: Recorder) -> TableEnvironment:
    return environment(recorder, SOURCE, SINK)


def planned(env: TableEnvironment, recorder: Recorder, sql: str) -> list[str]:
    env.execute_sql(sql)
    return [line.strip() for line in recorder.last.splitlines()][1:]


def test_columns_go_by_their_places(env: TableEnvironment, recorder: Recorder) -> None:
    """Computed columns of the table take nothing."""
    result = env.execute_sql("INSERT INTO t SELECT id, name, name FROM s")
    assert recorder.last.splitlines()[1].strip() == "Project(select=[id, name, name])"
    assert recorder.names == ["insert-into_default_catalog.default_database.t"]
    assert result.get_resolved_schema().get_column_names() == ["default_catalog.default_database.t"]
    assert list(result.collect()) == [Row(-1)]
    assert recorder.jobs[0].waits == [None]


def test_types_are_cast_where_that_loses_nothing(env: TableEnvironment, recorder: Recorder) -> None:
    assert planned(env, recorder, "INSERT INTO t SELECT n, name, name FROM s")[0] == (
        "Project(select=[CAST(n AS BIGINT) AS id, name, name0 AS dt])"
    )


def test_named_columns_get_values_and_others_null(env: TableEnvironment, recorder: Recorder) -> None:
    assert planned(env, recorder, "INSERT INTO t (dt, id) SELECT name, id FROM s")[0] == (
        "Project(select=[id, NULL:STRING AS name, name AS dt])"
    )
    assert recorder.written[-1][0].columns == (0, 2)


def test_a_static_partition_fills_its_column(env: TableEnvironment, recorder: Recorder) -> None:
    env.execute_sql("INSERT OVERWRITE t PARTITION (dt = 'mon') SELECT id, name FROM s")
    assert recorder.last.splitlines()[1].strip() == "Project(select=[id, name, 'mon' AS dt])"
    plan = recorder.written[-1][0]
    assert plan.overwrites
    assert plan.static_partition == (("dt", "mon"),)


def test_hints_are_options_of_the_table(env: TableEnvironment, recorder: Recorder) -> None:
    env.execute_sql("INSERT INTO t /*+ OPTIONS('a' = 'b') */ SELECT id, name, name FROM s")
    assert recorder.written[-1][0].options == (("connector", "print"), ("a", "b"))


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (
            "INSERT INTO t SELECT name, name, name FROM s",
            r"(?s)sink for 'default_catalog.default_database.t' do not match.\nCause: Incompatible types for sink "
            r"column 'id' at position 0.\n\nQuery schema: \[name: STRING, .*\]\nSink schema:  \[id: BIGINT, ",
        ),
        ("INSERT INTO t SELECT id FROM s", "Cause: Different number of columns."),
        ("INSERT INTO t (id, id) SELECT id, id FROM s", "Target column 'id' is assigned more than once"),
        ("INSERT INTO t (twice) SELECT name FROM s", "Unknown target column 'twice'"),
        ("INSERT INTO t (id) SELECT id, id FROM s", r"target columns \(1\) does not equal number of source items"),
        ("INSERT INTO s (id) SELECT id FROM s", "Column 'n' has no default value and does not allow NULLs"),
        ("INSERT INTO u SELECT 1", "Cannot find table '`default_catalog`.`default_database`.`u`'"),
        ("INSERT INTO t PARTITION (id = 1) SELECT name FROM s", "'id' is no partition column"),
    ],
)
def test_what_does_not_fit_is_refused(env: TableEnvironment, sql: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        env.execute_sql(sql)


def test_null_into_not_null_is_for_the_sink_to_see(env: TableEnvironment, recorder: Recorder) -> None:
    env.execute_sql("CREATE TABLE strict (id BIGINT NOT NULL)")
    env.execute_sql("INSERT INTO strict SELECT id FROM s")
    assert not recorder.written[-1][0].schema[0].type.is_nullable


def test_a_statement_set_is_one_job(env: TableEnvironment, recorder: Recorder) -> None:
    env.execute_sql(
        "EXECUTE STATEMENT SET BEGIN INSERT INTO t SELECT id, name, name FROM s; INSERT INTO s SELECT * FROM s; END"
    )
    assert len(recorder.written[-1]) == 2


def test_a_statement_set_may_come_in_pieces(env: TableEnvironment, recorder: Recorder) -> None:
    env.execute_sql("BEGIN STATEMENT SET")
    env.execute_sql("INSERT INTO s SELECT * FROM s")
    with pytest.raises(ValidationError, match="Only INSERT statement is allowed in Statement Set"):
        env.execute_sql("SHOW TABLES")
    assert recorder.written == []
    env.execute_sql("END")
    assert len(recorder.written[-1]) == 1
    with pytest.raises(ValidationError, match="No Statement Set to submit"):
        env.execute_sql("END")


def test_the_set_of_a_program_takes_sql_tables_and_pipelines(env: TableEnvironment, recorder: Recorder) -> None:
    made = env.create_statement_set()
    source = env.from_path("s")
    made.add_insert_sql("INSERT INTO s SELECT * FROM s").add_insert("s", source, overwrite=True)
    made.add(source.insert_into("s"))
    assert made.explain().count("Write(table=[default_catalog.default_database.s])") == 3
    made.execute()
    assert [plan.overwrites for plan in recorder.written[-1]] == [False, True, False]
    with pytest.raises(ValidationError, match="has no INSERT"):
        made.execute()


def test_a_table_goes_into_a_table_that_only_a_descriptor_describes(env: TableEnvironment, recorder: Recorder) -> None:
    schema = Schema.new_builder().column("n", DataTypes.INT()).build()
    sink = TableDescriptor.for_connector("print").schema(schema).build()
    pipeline = env.sql_query("SELECT n FROM s").insert_into(sink)
    assert pipeline.get_sink_identifier() is None
    pipeline.execute()
    assert recorder.written[-1][0].path[2] == "*anonymous_print$1*"
    assert env.list_tables() == ["s", "t"]


def test_a_table_is_made_and_filled_from_a_query(env: TableEnvironment, recorder: Recorder) -> None:
    env.execute_sql("CREATE TABLE made (extra INT, n BIGINT) WITH ('connector' = 'x') AS SELECT n, name AS who FROM s")
    assert [row[:3] for row in read_rows(env, "DESCRIBE made")] == [
        ("extra", "INT", True),
        ("n", "BIGINT", True),
        ("who", "STRING", True),
    ]
    assert recorder.last.splitlines()[1].strip() == ("Project(select=[NULL:INT AS extra, CAST(n AS BIGINT) AS n, who])")
    env.execute_sql("CREATE OR REPLACE TABLE made (b, a) AS SELECT n AS a, name AS b FROM s")
    assert [row[0] for row in read_rows(env, "DESCRIBE made")] == ["b", "a"]
    with pytest.raises(ValidationError, match="to be replaced doesn't exist"):
        env.execute_sql("REPLACE TABLE other AS SELECT 1 AS a")


def test_without_an_executor_nothing_runs_and_no_table_is_left() -> None:
    env = environment(None, SOURCE)
    with pytest.raises(UnsupportedError, match="Penstock does not run tables yet"):
        env.execute_sql("SELECT * FROM s")
    with pytest.raises(UnsupportedError, match="Penstock does not run tables yet"):
        env.execute_sql("CREATE TABLE made AS SELECT 1 AS a")
    assert env.list_tables() == ["s"]


def test_explain_shows_the_plan_and_what_the_executor_says(env: TableEnvironment) -> None:
    assert read_rows(env, "EXPLAIN CHANGELOG_MODE INSERT INTO s SELECT * FROM s") == [
        (
            "== Abstract Syntax Tree ==\n"
            "Write(table=[default_catalog.default_database.s])\n"
            "  Project(select=[id, name, n])\n"
            "    Scan(table=[default_catalog.default_database.s], fields=[id, name, n])\n\n"
            "== Physical Plan ==\n1 plans CHANGELOG_MODE",
        )
    ]


@pytest.mark.parametrize(
    "sql", ["DELETE FROM s", "UPDATE s SET id = 1", "TRUNCATE TABLE s", "ANALYZE TABLE s COMPUTE STATISTICS"]
)
def test_what_no_connector_can_do_is_said_so(env: TableEnvironment, sql: str) -> None:
    with pytest.raises(UnsupportedError, match=sql.split()[0]):
        env.execute_sql(sql)
