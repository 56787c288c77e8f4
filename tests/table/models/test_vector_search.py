"""VECTOR_SEARCH: its arguments as Flink checks them, exact answers, an index, and vectors without a distance."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.fresh_seeds import fresh_seeds

from penstock.base.errors import PenstockError
from penstock.sql.data.errors import ValidationError
from penstock.table import DataTypes, EnvironmentSettings, TableEnvironment, VectorSearchFunction

QUERIES = [(1, [1.0, 0.0]), (2, [0.0, -2.0]), (3, None)]
VECTORS: list[tuple[int, Any, str]] = [
    (1, [2.0, 0.0], "east"),
    (2, [0.0, 3.0], "north"),
    (3, [-1.0, 0.0], "west"),
    (4, [1.0, 1.0], "north-east"),
    (5, None, "nowhere"),
]


def environment(
    folder: Path, rows: Sequence[tuple[int, Any, str]] = VECTORS, is_batch: bool = False
) -> TableEnvironment:
    settings = EnvironmentSettings.in_batch_mode() if is_batch else EnvironmentSettings.in_streaming_mode()
    if not is_batch:
        settings.get_configuration().set_string("execution.target", "local")
    t_env = TableEnvironment.create(settings)
    folder.mkdir(exist_ok=True)
    lines = [json.dumps({"id": number, "vec": vector, "body": body}) for number, vector, body in rows]
    (folder / "rows.json").write_text("\n".join(lines) + "\n")
    for name, metric in (("v", "cosine"), ("by_distance", "l2"), ("by_product", "dot")):
        create(t_env, name, folder, metric=metric)
    kinds = [DataTypes.FIELD("qid", DataTypes.INT()), DataTypes.FIELD("d", DataTypes.ARRAY(DataTypes.FLOAT()))]
    t_env.create_temporary_view("q", t_env.from_elements(QUERIES, DataTypes.ROW(kinds)))
    return t_env


def create(t_env: TableEnvironment, name: str, folder: Path, **options: str) -> None:
    text = "".join(f", 'vector.{key}' = '{value}'" for key, value in options.items())
    t_env.execute_sql(
        f"CREATE TABLE {name} (id INT, vec ARRAY<FLOAT>, body STRING) WITH ('connector' = 'filesystem', "
        f"'format' = 'json', 'path' = '{folder}'{text})"
    )


def found(t_env: TableEnvironment, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in t_env.execute_sql(query).collect()]


ROOT = math.sqrt(0.5)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("v", [(1, 1, 1.0), (1, 4, ROOT), (2, 1, 0.0), (2, 3, 0.0)]),
        ("by_distance", [(1, 1, 1.0), (1, 4, 1.0), (2, 3, math.sqrt(5)), (2, 1, math.sqrt(8))]),
        ("by_product", [(1, 1, 2.0), (1, 4, 1.0), (2, 1, 0.0), (2, 3, 0.0)]),
    ],
)
def test_the_nearest_come_first(tmp_path: Path, table: str, expected: list[Any]) -> None:
    call = f"VECTOR_SEARCH(TABLE {table}, DESCRIPTOR(vec), q.d, 2)"
    rows = found(environment(tmp_path / "t"), f"SELECT qid, id, score FROM q, LATERAL TABLE({call})")
    assert [(qid, number, pytest.approx(score)) for qid, number, score in expected] == rows


def test_forms_of_a_call(tmp_path: Path) -> None:
    t_env = environment(tmp_path / "t")
    arguments = "TABLE v, DESCRIPTOR(`vec`), ARRAY[1.5, 0], 1"
    named = "SEARCH_TABLE => TABLE v, COLUMN_TO_SEARCH => DESCRIPTOR(vec), COLUMN_TO_QUERY => ARRAY[1.5, 0], TOP_K => 1"
    expected = [(1, [2.0, 0.0], "east", 1.0)]
    for source in (
        f"VECTOR_SEARCH({arguments})",
        f"TABLE(VECTOR_SEARCH({arguments}, MAP['async', 'false', 'any', 'thing']))",
        f"LATERAL TABLE(VECTOR_SEARCH({named}))",
    ):
        assert found(t_env, f"SELECT * FROM {source}") == expected
    call = "LATERAL TABLE(VECTOR_SEARCH(TABLE v, DESCRIPTOR(vec), d, 1))"
    assert found(t_env, f"SELECT qid, s.id FROM q, {call} AS s WHERE qid = 2") == [(2, 1)]
    assert found(t_env, f"SELECT qid, id FROM q LEFT JOIN {call} ON TRUE") == [(1, 1), (2, 1), (3, None)]
    assert found(t_env, f"SELECT qid, id FROM q LEFT JOIN {call} ON qid = id") == [(1, 1), (2, None), (3, None)]


def test_columns_and_plan(tmp_path: Path) -> None:
    t_env = environment(tmp_path / "t")
    t_env.execute_sql(
        "CREATE TABLE scored (id INT NOT NULL, vec ARRAY<DOUBLE>, score INT) WITH ('connector' = 'filesystem', "
        f"'format' = 'json', 'path' = '{tmp_path}')"
    )
    query = "SELECT * FROM q LEFT JOIN LATERAL TABLE(VECTOR_SEARCH(TABLE scored, DESCRIPTOR(vec), q.d, 2)) ON TRUE"
    columns = t_env.sql_query(query)._plan.schema.columns
    shown = [(column.name, str(column)) for column in columns[2:]]
    assert shown == [("id", "INT"), ("vec", "ARRAY<DOUBLE>"), ("score", "INT"), ("score0", "DOUBLE")]
    assert (
        "VectorSearchTableFunction(table=[default_catalog.default_database.scored], joinType=[LeftOuterJoin], "
        "columnToSearch=[vec], columnToQuery=[CAST(d AS ARRAY<DOUBLE>)], topK=[2], "
        "select=[qid, d, id, vec, score, score0], changelogMode=[I])"
    ) in t_env.explain_sql(query)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("TABLE v, DESCRIPTOR(vec), q.d", "Invalid number of arguments to function 'VECTOR_SEARCH'"),
        ("TABLE v, DESCRIPTOR(vec), q.d, 10, 10", "Config param should be a MAP"),
        ("TABLE v, DESCRIPTOR(vec), q.d, 0", "Parameter top_k must be greater than 0, but was 0."),
        ("TABLE v, DESCRIPTOR(vec), q.d, -1", "Parameter top_k must be greater than 0, but was -1."),
        (
            "TABLE v, DESCRIPTOR(vec), q.d, q.qid",
            "Expect parameter top_k is an INTEGER NOT NULL literal in VECTOR_SEARCH",
        ),
        ("TABLE v, DESCRIPTOR(vec), q.d, 10.5", "but it is 10.5 with type DECIMAL(3, 1) NOT NULL."),
        (
            "TABLE v, DESCRIPTOR(vec), q.d, 'x'",
            "Expect parameter top_k is an INTEGER NOT NULL literal in VECTOR_SEARCH",
        ),
        (
            "TABLE v, DESCRIPTOR(vec, body), q.d, 2",
            "only contains one column, but multiple columns are found in operand DESCRIPTOR(`vec`, `body`).",
        ),
        ("TABLE v, DESCRIPTOR(vector), q.d, 2", "Unknown identifier 'vector'"),
        ("TABLE v, DESCRIPTOR(body), q.d, 2", "Expect search column `body` type is ARRAY<FLOAT> or ARRAY<DOUBLE>"),
        ("TABLE v, DESCRIPTOR(vec), CAST(q.d AS ARRAY<DOUBLE>), 2", "Can not cast the query column type ARRAY<DOUBLE>"),
        ("TABLE v, DESCRIPTOR(vec), 'x', 2", "to target type ARRAY<FLOAT>. Please keep the query column type is same"),
        ("TABLE v, vec, q.d, 2", "No match found for function signature VECTOR_SEARCH"),
        (
            "(SELECT * FROM v WHERE id > 1), DESCRIPTOR(vec), q.d, 2",
            "does not support filter on parameter search_table",
        ),
        ("(SELECT vec FROM v), DESCRIPTOR(vec), q.d, 2", "Don't support calc on VECTOR_SEARCH node now"),
        ("TABLE v, DESCRIPTOR(vec), q.d, 2, MAP['async', 'yes']", "Unrecognized option for boolean: yes."),
        ("TABLE v, DESCRIPTOR(vec), q.d, 2, MAP['async', 'true']", "doesn't support async mode"),
        ("TABLE v, DESCRIPTOR(vec), q.d, 2, MAP['max-concurrent-operations', '-1']", "positive integer but was -1"),
        ("TABLE q, DESCRIPTOR(d), q.d, 2", "Don't support calc on VECTOR_SEARCH node now"),
        ("TABLE misspelt, DESCRIPTOR(vec), q.d, 2", "Unsupported options of table"),
        ("TABLE endless, DESCRIPTOR(vec), q.d, 2", "cannot be searched for vectors, because it does not end"),
        ("TABLE nameless, DESCRIPTOR(vec), q.d, 2", "there is no 'Nope'"),
    ],
)
def test_errors(tmp_path: Path, arguments: str, message: str) -> None:
    t_env = environment(tmp_path / "t")
    create(t_env, "misspelt", tmp_path / "t", metrik="l2")
    t_env.execute_sql("CREATE TABLE endless (vec ARRAY<FLOAT>) WITH ('connector' = 'datagen')")
    of_class = "'connector' = 'vector-function', 'class' = 'tests.table.models.test_vector_search.Nope'"
    t_env.execute_sql(f"CREATE TABLE nameless (vec ARRAY<FLOAT>) WITH ({of_class})")
    query = f"SELECT * FROM q, LATERAL TABLE(VECTOR_SEARCH({arguments}))"
    with pytest.raises(PenstockError) as error:
        found(t_env, query)
    assert message in str(error.value) or (message == "there is no 'Nope'" and "cannot import" in str(error.value))


@pytest.mark.parametrize(
    ("vector", "metric", "reason"),
    [
        ([1.0, None], "l2", "it has NULL, NaN or an infinite number"),
        ([0.0, 0.0], "cosine", "a zero vector has no cosine"),
        ([1.0], "dot", "it has 1 numbers, and the first vector 2"),
    ],
)
def test_a_vector_without_a_distance_is_refused_by_name(
    tmp_path: Path, vector: list[float | None], metric: str, reason: str
) -> None:
    t_env = environment(tmp_path / "t", [*VECTORS, (9, vector, "bad")])
    create(t_env, "bad", tmp_path / "t", metric=metric)
    with pytest.raises(PenstockError) as error:
        found(t_env, "SELECT * FROM VECTOR_SEARCH(TABLE bad, DESCRIPTOR(vec), ARRAY[1, 0], 2)")
    assert f"vector vec of the row with id = 9, body = 'bad' cannot be searched: {reason}" in str(error.value)


@pytest.mark.parametrize(
    ("vector", "reason"),
    [
        ("ARRAY[0, 0]", "a zero vector has no cosine"),
        ("ARRAY[1, 2, 3]", "a vector of 3 numbers: those of table"),
        ("ARRAY[1, CAST(NULL AS FLOAT)]", "has no distance"),
    ],
)
def test_queries_without_a_distance_are_refused(tmp_path: Path, vector: str, reason: str) -> None:
    with pytest.raises(PenstockError) as error:
        found(environment(tmp_path / "t"), f"SELECT * FROM VECTOR_SEARCH(TABLE v, DESCRIPTOR(vec), {vector}, 2)")
    assert reason in str(error.value)


def test_a_table_without_rows(tmp_path: Path) -> None:
    t_env = environment(tmp_path / "t", [(5, None, "nowhere")])
    assert found(t_env, "SELECT * FROM VECTOR_SEARCH(TABLE v, DESCRIPTOR(vec), ARRAY[1, 0], 2)") == []


class Compass(VectorSearchFunction):
    """Answers with the direction of a vector, for one row."""

    def open(self, function_context: Any) -> None:
        self.word = function_context.get_job_parameter("word", "angle")

    def search(self, vector: Sequence[float], top_k: int) -> Sequence[tuple[Any, ...]]:
        return [(number, list(vector), self.word, math.atan2(vector[1], vector[0])) for number in range(top_k)]


def test_a_class_of_the_users(tmp_path: Path) -> None:
    t_env = environment(tmp_path / "t")
    of_class = "'connector' = 'vector-function', 'class' = 'tests.table.models.test_vector_search.Compass'"
    t_env.execute_sql(f"CREATE TABLE compass (id INT, vec ARRAY<FLOAT>, body STRING) WITH ({of_class})")
    rows = found(
        t_env, "SELECT qid, id, body, score FROM q, LATERAL TABLE(VECTOR_SEARCH(TABLE compass, DESCRIPTOR(vec), d, 2))"
    )
    assert rows == [
        (1, 0, "angle", 0.0),
        (1, 1, "angle", 0.0),
        (2, 0, "angle", -math.pi / 2),
        (2, 1, "angle", -math.pi / 2),
    ]
    with pytest.raises(ValidationError, match="can only be used as a sink"):
        t_env.explain_sql("SELECT * FROM compass")


@pytest.mark.parametrize("metric", ["cosine", "dot", "l2"])
def test_the_index_finds_what_an_exact_search_finds(tmp_path: Path, metric: str) -> None:
    pytest.importorskip("usearch")
    seed = fresh_seeds()[0]
    print(f"seed {seed}")
    rng = random.Random(seed)
    rows = [(number, [rng.gauss(0, 1) for _ in range(16)], "") for number in range(500)]
    t_env = environment(tmp_path / "t", rows)
    create(t_env, "exact", tmp_path / "t", metric=metric)
    create(t_env, "indexed", tmp_path / "t", metric=metric, index="usearch")
    vector = ", ".join(str(rng.gauss(0, 1)) for _ in range(16))
    query = f"SELECT id, score FROM VECTOR_SEARCH(TABLE {{}}, DESCRIPTOR(vec), ARRAY[{vector}], 10)"
    exact, indexed = (dict(found(t_env, query.format(name))) for name in ("exact", "indexed"))
    shared = exact.keys() & indexed.keys()
    assert len(shared) >= 9
    assert {number: pytest.approx(exact[number]) for number in shared} == {number: indexed[number] for number in shared}


@pytest.mark.spark
def test_batches_search_in_the_tasks_of_spark(tmp_path: Path) -> None:
    t_env = environment(tmp_path / "t", is_batch=True)
    query = "SELECT qid, id FROM q LEFT JOIN LATERAL TABLE(VECTOR_SEARCH(TABLE v, DESCRIPTOR(vec), q.d, 1)) ON TRUE"
    assert sorted(found(t_env, query), key=lambda row: row[0]) == [(1, 1), (2, 1), (3, None)]
