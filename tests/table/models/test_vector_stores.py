"""VECTOR_SEARCH in stores of vectors: sqlite-vec, Qdrant's local mode and pgvector, each beside the exact search."""

from __future__ import annotations

import json
import math
import random
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.servers.postgres import PostgresServer, vector_server
from tests.simulation.fresh_seeds import fresh_seeds

from penstock.base.errors import PenstockError
from penstock.sql.connectors import qdrant as qdrant_store
from penstock.table import EnvironmentSettings, TableEnvironment

#: id, vector, body, price, whether it is in stock
Rows = Sequence[tuple[int, list[float] | None, str | None, float, bool]]
ROWS: Rows = [
    (1, [2.0, 0.0], "east", 1.0, True),
    (2, [0.0, 3.0], "north", 2.5, False),
    (3, [-1.0, 0.0], "west", 3.0, True),
    (4, [1.0, 1.0], "north-east", 4.0, True),
]
KEY = "PRIMARY KEY (id) NOT ENFORCED"
COLUMNS = f"id BIGINT, v ARRAY<FLOAT>, body STRING, price DOUBLE, stocked BOOLEAN, {KEY}"
METRICS = ("cosine", "dot", "l2")
#: creates a table of rows in a store, and returns the options of the table
Store = Callable[[Path, str, Rows], str]


def as_blob(vector: list[float] | None) -> bytes | None:
    return None if vector is None else np.array(vector, np.float32).tobytes()


def open_sqlite(path: Path) -> Any:
    apsw = pytest.importorskip("apsw", reason="apsw is not installed: pip install 'penstock-streams[sqlite-vec]'")
    extension = pytest.importorskip("sqlite_vec", reason="sqlite-vec is not installed")
    connection = apsw.Connection(str(path))
    connection.enable_load_extension(True)
    connection.load_extension(extension.loadable_path())
    return connection


def of_sqlite(path: Path, table: str, metric: str = "cosine") -> str:
    return f"'connector' = 'sqlite-vec', 'path' = '{path}', 'table-name' = '{table}', 'vector.metric' = '{metric}'"


def create_virtual(folder: Path, metric: str, rows: Rows, name: str = "drinks", size: int = 0) -> str:
    if metric == "dot":
        pytest.skip("sqlite-vec has no inner product")
    path = folder / "store.db"
    connection = open_sqlite(path)
    size = size or len(rows[0][1] or ())
    connection.execute(
        f"CREATE VIRTUAL TABLE {name} USING vec0(id INTEGER PRIMARY KEY, v float[{size}] distance_metric={metric}, "
        "+body TEXT, price FLOAT, stocked BOOLEAN)"
    )
    for number, vector, *others in rows:
        if vector is not None:
            connection.execute(f"INSERT INTO {name} VALUES (?, ?, ?, ?, ?)", (number, as_blob(vector), *others))
    connection.close()
    return of_sqlite(path, name, metric)


def create_plain(folder: Path, metric: str, rows: Rows) -> str:
    if metric == "dot":
        pytest.skip("sqlite-vec has no inner product")
    path = folder / "store.db"
    connection = open_sqlite(path)
    connection.execute("CREATE TABLE plain (id INTEGER PRIMARY KEY, v BLOB, body TEXT, price REAL, stocked INTEGER)")
    for at, (number, vector, *others) in enumerate(rows):
        stored = json.dumps(vector) if at % 3 == 0 and vector is not None else as_blob(vector)
        connection.execute("INSERT INTO plain VALUES (?, ?, ?, ?, ?)", (number, stored, *others))
    connection.close()
    return of_sqlite(path, "plain", metric)


def create_collection(folder: Path, metric: str, rows: Rows, vectors: Any = None, size: int = 0) -> str:
    qdrant = pytest.importorskip("qdrant_client", reason="qdrant-client: pip install 'penstock-streams[qdrant]'")
    models = qdrant.models
    client = qdrant.QdrantClient(path=str(folder / "qdrant"))
    distance = {"cosine": "Cosine", "dot": "Dot", "l2": "Euclid"}[metric]
    size = size or (len(rows[0][1] or ()) if rows else 0)
    client.create_collection(
        "drinks", vectors_config=vectors or models.VectorParams(size=size, distance=models.Distance(distance))
    )
    points = [
        models.PointStruct(
            id=number, vector=vector or {}, payload={"body": body, "price": price, "stocked": stocked, "other": 1}
        )
        for number, vector, body, price, stocked in rows
    ]
    if points:
        client.upsert("drinks", points=points)
    client.close()
    path = folder / "qdrant"
    return f"'connector' = 'qdrant', 'path' = '{path}', 'collection' = 'drinks', 'vector.metric' = '{metric}'"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with vector_server() as started:
        yield started


class Postgres:
    """Creates tables in databases of its own."""

    def __init__(self, server: PostgresServer) -> None:
        self.server, self.name = server, server.new_database()
        self.execute("CREATE EXTENSION vector")

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        return self.server.execute(statement, self.name)

    def options(self, metric: str = "cosine", table: str = "drinks") -> str:
        return (
            f"'connector' = 'jdbc', 'url' = '{self.server.jdbc_url(self.name)}', 'username' = 'postgres', "
            f"'table-name' = '{table}', 'vector.index' = 'pgvector', 'vector.metric' = '{metric}'"
        )

    def create(self, folder: Path, metric: str, rows: Rows, index: str = "", size: int = 0) -> str:
        size = size or len(rows[0][1] or ())
        self.execute(
            f"CREATE TABLE drinks (id int8 PRIMARY KEY, v vector({size}), body text, price float8, stocked bool)"
        )
        with self.server.connect(self.name) as connection, connection.cursor() as cursor:
            texts = [(row[0], None if row[1] is None else str(row[1]), *row[2:]) for row in rows]
            cursor.executemany("INSERT INTO drinks VALUES (%s, %s, %s, %s, %s)", texts)
        if index:
            operators = {"cosine": "vector_cosine_ops", "dot": "vector_ip_ops", "l2": "vector_l2_ops"}[metric]
            self.execute(f"CREATE INDEX ON drinks USING {index} (v {operators}); ANALYZE drinks")
        return self.options(metric)


@pytest.fixture(params=["vec0", "blobs", "qdrant", "pgvector"])
def create(request: pytest.FixtureRequest) -> Store:
    if request.param == "pgvector":
        return Postgres(request.getfixturevalue("server")).create
    return {"vec0": create_virtual, "blobs": create_plain, "qdrant": create_collection}[request.param]


def environment(is_batch: bool = False, parallelism: int = 1) -> TableEnvironment:
    settings = EnvironmentSettings.in_batch_mode() if is_batch else EnvironmentSettings.in_streaming_mode()
    if not is_batch:
        settings.get_configuration().set_string("execution.target", "local")
        settings.get_configuration().set_string("parallelism.default", str(parallelism))
        settings.get_configuration().set_string("table.exec.sink.upsert-materialize", "NONE")
    return TableEnvironment.create(settings)


def declare(t_env: TableEnvironment, options: str, name: str = "t", columns: str = COLUMNS) -> None:
    t_env.execute_sql(f"CREATE TABLE {name} ({columns}) WITH ({options})")


def declare_exact(t_env: TableEnvironment, folder: Path, metric: str, rows: Rows) -> None:
    (folder / "exact").mkdir()
    keys = ("id", "v", "body", "price", "stocked")
    lines = [json.dumps(dict(zip(keys, row, strict=True))) for row in rows]
    (folder / "exact" / "rows.json").write_text("\n".join(lines))
    declare(
        t_env,
        f"'connector' = 'filesystem', 'format' = 'json', 'path' = '{folder}/exact', 'vector.metric' = '{metric}'",
        "exact",
        COLUMNS.replace(f", {KEY}", ""),
    )


def found(t_env: TableEnvironment, query: str) -> list[tuple[Any, ...]]:
    with t_env.execute_sql(query).collect() as rows:
        return [tuple(row) for row in rows]


def literal(vector: Sequence[float]) -> str:
    return f"ARRAY[{', '.join(f'CAST({number!r} AS FLOAT)' for number in vector)}]"


ROOT = math.sqrt(0.5)


def test_the_nearest_come_first(tmp_path: Path, create: Store) -> None:
    t_env = environment()
    declare(t_env, create(tmp_path, "l2", [*ROWS, (5, None, None, 5.0, False)]))
    rows = found(
        t_env, "SELECT id, v, body, price, stocked, score FROM VECTOR_SEARCH(TABLE t, DESCRIPTOR(v), ARRAY[0, 1], 9)"
    )
    assert rows[0] == (4, [1.0, 1.0], "north-east", 4.0, True, 1.0)
    assert rows[2] == (2, [0.0, 3.0], "north", 2.5, False, 2.0)
    assert [row[0] for row in rows] == [4, 3, 2, 1]
    vectors = "(VALUES (1, ARRAY[0.0, 2.0]), (2, CAST(NULL AS ARRAY<DOUBLE>))) AS q(qid, d)"
    call = "LATERAL TABLE(VECTOR_SEARCH(TABLE t, DESCRIPTOR(v), CAST(q.d AS ARRAY<FLOAT>), 1)) ON TRUE"
    assert found(t_env, f"SELECT qid, id FROM {vectors} LEFT JOIN {call}") == [(1, 2), (2, None)]


@pytest.mark.parametrize("metric", METRICS)
def test_a_store_finds_what_the_exact_search_finds(tmp_path: Path, create: Store, metric: str) -> None:
    seed = fresh_seeds()[0]
    print(f"seed {seed}")
    rng = random.Random(seed)
    size = rng.choice([2, 3, 8, 17])

    def draw() -> list[float]:
        return [float(np.float32(rng.gauss(0, 1) * 10 ** rng.randint(-3, 3))) for _ in range(size)]

    vectors = [draw() for _ in range(rng.randint(1, 200))]
    vectors += rng.choices(vectors, k=5)
    rows: Rows = [
        (at, vector if at == 0 or rng.random() < 0.95 else None, rng.choice(["é", "", "x"]), at / 4, at % 2 == 0)
        for at, vector in enumerate(vectors)
    ]
    t_env = environment()
    declare(t_env, create(tmp_path, metric, rows))
    declare_exact(t_env, tmp_path, metric, rows)
    top_k = rng.choice([1, 5, 60, 300])
    queries = [draw() for _ in range(8)]
    values = ", ".join(f"({at}, {literal(vector)})" for at, vector in enumerate(queries))
    query = (
        f"SELECT qid, id, body, price, stocked, score FROM (VALUES {values}) AS q(qid, d), "
        f"LATERAL TABLE(VECTOR_SEARCH(TABLE {{}}, DESCRIPTOR(v), q.d, {top_k}))"
    )
    exact, stored = (found(t_env, query.format(name)) for name in ("exact", "t"))
    assert len(exact) == len(stored)
    scales = [
        float(np.linalg.norm(vector)) * max(np.linalg.norm(row[1]) for row in rows if row[1]) for vector in queries
    ]
    for wanted, given in zip(exact, stored, strict=True):
        scale = 1.0 if metric == "cosine" else max(1.0, scales[wanted[0]])
        assert given[0] == wanted[0]
        # Rows whose scores differ by less than 32 bits hold may change places.
        assert given[-1] == pytest.approx(wanted[-1], abs=1e-6 * scale, rel=1e-5)
    by_row = {(row[0], row[1]): row[2:5] for row in exact}
    assert {(row[0], row[1]): row[2:5] for row in stored if (row[0], row[1]) in by_row}.items() <= by_row.items()
    # Rows with the same vector are equally near, so either may be found.
    nearest, near = ({(row[0], *vectors[row[1]]) for row in results} for results in (exact, stored))
    assert len(nearest & near) >= 0.95 * len(nearest) - 4


def spoil(store: str, folder: Path, vector: list[float], request: pytest.FixtureRequest) -> str:
    """Return the options of a table that holds a vector without a distance, after a good one."""
    rows: Rows = [(1, [1.0, 0.0], "good", 1.0, True), (9, vector, "bad", 0.0, True)]
    if store == "pgvector":
        return Postgres(request.getfixturevalue("server")).create(folder, "cosine", rows)
    return {"vec0": create_virtual, "blobs": create_plain, "qdrant": create_collection}[store](folder, "cosine", rows)


@pytest.mark.parametrize(
    ("store", "vector", "reason"),
    [
        ("vec0", [math.nan, 1.0], "it has NULL, NaN or an infinite number"),
        ("vec0", [math.inf, 1.0], "it has NULL, NaN or an infinite number"),
        ("vec0", [0.0, 0.0], "a zero vector has no cosine"),
        ("vec0", [1e30, 0.0], "its numbers or their squares are too large or too small for 32 bits"),
        ("blobs", [math.nan, 1.0], "it has NULL, NaN or an infinite number"),
        ("blobs", [0.0, 0.0], "a zero vector has no cosine"),
        ("blobs", [1.0, 2.0, 3.0], "it has 3 numbers instead of 2"),
        ("qdrant", [0.0, 0.0], "a zero vector has no cosine"),
        ("pgvector", [0.0, 0.0], "a zero vector has no cosine"),
    ],
)
def test_a_stored_vector_without_a_distance_is_refused_by_name(
    tmp_path: Path, request: pytest.FixtureRequest, store: str, vector: list[float], reason: str
) -> None:
    t_env = environment()
    declare(t_env, spoil(store, tmp_path, vector, request))
    with pytest.raises(PenstockError) as error:
        found(t_env, "SELECT * FROM VECTOR_SEARCH(TABLE t, DESCRIPTOR(v), ARRAY[1, 0], 2)")
    wanted = f"vector v of the row with id = 9, body = 'bad', price = 0.0, stocked = True cannot be searched: {reason}"
    assert wanted in str(error.value)


def test_vectors_of_another_length_in_postgresql_are_refused_by_name(tmp_path: Path, server: PostgresServer) -> None:
    database = Postgres(server)
    t_env = environment()
    database.execute("CREATE TABLE drinks (id int, v vector); INSERT INTO drinks VALUES (1, '[1,2]'), (9, '[1,2,3]')")
    declare(t_env, database.options(), columns="id INT, v ARRAY<DOUBLE>")
    for query, reason in (("1, 2", "id = '9' cannot be searched: it has 3 numbers instead of 2"), ("1", "id = '1'")):
        with pytest.raises(PenstockError) as error:
            found(t_env, f"SELECT * FROM VECTOR_SEARCH(TABLE t, DESCRIPTOR(v), ARRAY[{query}], 2)")
        assert reason in str(error.value)
    database.execute("DELETE FROM drinks WHERE id = 9")
    with pytest.raises(PenstockError, match=r"a vector of 3 numbers: those of table \S+ have 2"):
        found(t_env, "SELECT * FROM VECTOR_SEARCH(TABLE t, DESCRIPTOR(v), ARRAY[1, 2, 3], 2)")


def test_queries_without_a_distance_are_refused(tmp_path: Path, create: Store) -> None:
    t_env = environment()
    declare(t_env, create(tmp_path, "cosine", ROWS))
    for vector, reason in (("0, 0", "a zero vector has no cosine"), ("1, 2, 3", "a vector of 3 numbers: those of")):
        with pytest.raises(PenstockError, match=reason):
            found(t_env, f"SELECT * FROM VECTOR_SEARCH(TABLE t, DESCRIPTOR(v), ARRAY[{vector}], 2)")


def test_a_table_without_rows(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    t_env = environment()
    declare(t_env, create_virtual(tmp_path, "l2", [], size=2), "virtual")
    declare(t_env, create_plain(tmp_path, "l2", []), "plain")
    declare(t_env, create_collection(tmp_path, "l2", [], size=2), "points")
    declare(t_env, Postgres(request.getfixturevalue("server")).create(tmp_path, "l2", [], size=2), "relation")
    for name in ("virtual", "plain", "points", "relation"):
        assert found(t_env, f"SELECT * FROM VECTOR_SEARCH(TABLE {name}, DESCRIPTOR(v), ARRAY[1, 0], 2)") == []


@pytest.mark.parametrize("index", ["hnsw", "ivfflat"])
def test_an_index_returns_as_many_rows_as_are_wanted(tmp_path: Path, server: PostgresServer, index: str) -> None:
    rng = random.Random(seed := fresh_seeds()[0])
    print(f"seed {seed}")
    rows: Rows = [(at, [rng.gauss(0, 1) for _ in range(4)], None, 0.0, True) for at in range(3_000)]
    database = Postgres(server)
    t_env = environment()
    declare(t_env, database.create(tmp_path, "l2", rows, index))
    for top_k in (100, 1_500):
        query = f"SELECT id FROM VECTOR_SEARCH(TABLE t, DESCRIPTOR(v), ARRAY[0, 0, 0, 0], {top_k})"
        nearest = {row[0] for row in sorted(rows, key=lambda row: np.linalg.norm(row[1] or ()))[:top_k]}
        ids = {row[0] for row in found(t_env, query)}
        assert len(ids) == top_k
        # A search of one of many lists, IVFFlat's default, misses most of the nearest.
        assert index == "ivfflat" or len(ids & nearest) >= 0.9 * top_k


@pytest.mark.parametrize("create", ["vec0", "blobs", "qdrant", "pgvector"], indirect=True)
def test_rows_are_written_by_key(tmp_path: Path, create: Store) -> None:
    t_env = environment(parallelism=2)
    declare(t_env, create(tmp_path, "cosine", ROWS).replace("'vector.index' = 'pgvector', ", ""))
    changes = "(1, ARRAY[0.0, 5.0], 'new', 7.5, TRUE), (7, ARRAY[1.5, 2.5], '', 8.0, FALSE)"
    t_env.execute_sql(
        f"INSERT INTO t SELECT id, CAST(v AS ARRAY<FLOAT>), body, price, stocked FROM (VALUES {changes}) "
        "AS c(id, v, body, price, stocked)"
    ).wait()
    rows = found(
        t_env, "SELECT id, body, price, stocked, score FROM VECTOR_SEARCH(TABLE t, DESCRIPTOR(v), ARRAY[0, 1], 9)"
    )
    assert sorted(row[0] for row in rows) == [1, 2, 3, 4, 7]
    assert {row[0]: row[1:] for row in rows}[1] == ("new", 7.5, True, 1.0)
    assert {row[0]: row[1:] for row in rows}[7] == ("", 8.0, False, pytest.approx(2.5 / math.hypot(1.5, 2.5)))


def test_a_changelog_removes_rows(tmp_path: Path, create: Store) -> None:
    t_env = environment()
    declare(t_env, create(tmp_path, "l2", ROWS))
    keys = ("id", "v", "body", "price", "stocked")
    first, kept, north = (
        dict(zip(keys, row, strict=True))
        for row in ((20, [9.0, 9.0], "x", 1.0, True), (21, [8.0, 8.0], "x", 1.0, True), ROWS[1])
    )
    lines = [
        {"before": None, "after": first, "op": "c"},
        {"before": None, "after": kept, "op": "c"},
        {"before": first, "after": None, "op": "d"},
        {"before": north, "after": None, "op": "d"},
    ]
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "rows.json").write_text("\n".join(map(json.dumps, lines)))
    options = f"'connector' = 'filesystem', 'format' = 'debezium-json', 'path' = '{tmp_path}/changes'"
    declare(t_env, options, "changes", COLUMNS.replace(f", {KEY}", ""))
    t_env.execute_sql("INSERT INTO t SELECT * FROM changes").wait()
    rows = found(t_env, "SELECT id FROM VECTOR_SEARCH(TABLE t, DESCRIPTOR(v), ARRAY[9, 9], 9)")
    assert sorted(rows) == [(1,), (3,), (4,), (21,)]


@pytest.mark.parametrize("store", ["vec0", "blobs", "qdrant"])
@pytest.mark.parametrize(
    ("vector", "reason"),
    [
        ("ARRAY[CAST('NaN' AS FLOAT), 1]", "it has NULL, NaN or an infinite number"),
        ("ARRAY[CAST('Infinity' AS FLOAT), 1]", "it has NULL, NaN or an infinite number"),
        ("ARRAY[CAST(1 AS FLOAT)]", "it has 1 numbers instead of 2"),
        ("ARRAY[CAST(0 AS FLOAT), 0]", "a zero vector has no cosine"),
        ("ARRAY[CAST(1e30 AS FLOAT), 0]", "its numbers or their squares are too large or too small for 32 bits"),
    ],
)
def test_a_vector_without_a_distance_is_not_written(
    tmp_path: Path, request: pytest.FixtureRequest, store: str, vector: str, reason: str
) -> None:
    t_env = environment()
    declare(t_env, spoil(store, tmp_path, [0.5, 0.5], request))
    with pytest.raises(PenstockError) as error:
        t_env.execute_sql(
            f"INSERT INTO t VALUES (9, {vector}, 'bad', 0.0, TRUE), (10, ARRAY[1, 1], '', 1.0, TRUE)"
        ).wait()
    wanted = f"vector v of the row with id = 9, body = 'bad', price = 0.0, stocked = True cannot be written: {reason}"
    assert wanted in str(error.value)
    rows = found(t_env, "SELECT id, body FROM VECTOR_SEARCH(TABLE t, DESCRIPTOR(v), ARRAY[1, 0], 9)")
    assert rows == [(1, "good"), (9, "bad")]


def test_a_row_that_sqlite_refuses_leaves_nothing(tmp_path: Path) -> None:
    options = create_virtual(tmp_path, "l2", ROWS)
    connection = open_sqlite(tmp_path / "store.db")
    connection.execute("CREATE VIRTUAL TABLE strict USING vec0(id INTEGER PRIMARY KEY, v float[2], kind TEXT)")
    connection.close()
    t_env = environment()
    columns = f"id BIGINT, v ARRAY<FLOAT>, kind BIGINT, {KEY}"
    declare(t_env, options.replace("'drinks'", "'strict'"), columns=columns)
    with pytest.raises(PenstockError, match=r"writing of SQLite's table strict .* Expected text for TEXT metadata"):
        t_env.execute_sql("INSERT INTO t VALUES (1, ARRAY[1, 2], 3)").wait()
    assert found(t_env, "SELECT id FROM VECTOR_SEARCH(TABLE t, DESCRIPTOR(v), ARRAY[1, 0], 9)") == []


@pytest.mark.parametrize("vector", ["CAST('NaN' AS FLOAT), 1", "CAST('Infinity' AS FLOAT), 1", "CAST(1 AS FLOAT)"])
def test_pgvector_refuses_vectors(tmp_path: Path, server: PostgresServer, vector: str) -> None:
    t_env = environment()
    declare(t_env, Postgres(server).create(tmp_path, "cosine", ROWS))
    with pytest.raises(PenstockError, match="PostgreSQL refuses rows of"):
        t_env.execute_sql(f"INSERT INTO t VALUES (9, ARRAY[{vector}], '', 0.0, TRUE)").wait()


def test_types_and_catalogs_of_postgresql(tmp_path: Path, server: PostgresServer) -> None:
    database = Postgres(server)
    if not database.execute("SELECT 1 FROM pg_type WHERE typname = 'halfvec'"):
        pytest.skip("pgvector before 0.7 has no type halfvec")
    database.execute(
        "CREATE TABLE drinks (id int PRIMARY KEY, v vector(2), h halfvec(2), d date, a int[]); "
        "INSERT INTO drinks VALUES (1, '[1,2]', '[1,2]', '2026-01-02', '{1,NULL}'), (2, NULL, '[3,4]', NULL, NULL)"
    )
    t_env = environment()
    t_env.execute_sql(
        f"CREATE CATALOG pg WITH ('type' = 'jdbc', 'base-url' = 'jdbc:postgresql://127.0.0.1:{server.port}', "
        f"'default-database' = '{database.name}', 'username' = 'postgres', 'password' = 'none')"
    )
    table = f"pg.{database.name}.drinks"
    assert [row[:2] for row in found(t_env, f"DESCRIBE {table}")][1:3] == [("v", "ARRAY<FLOAT>"), ("h", "ARRAY<FLOAT>")]
    first, second = found(t_env, f"SELECT id, v, h, CAST(d AS STRING), a FROM {table}")
    assert first == (1, [1.0, 2.0], [1.0, 2.0], "2026-01-02", [1, None])
    assert second == (2, None, [3.0, 4.0], None, None)
    for column, ids in (("v", [1]), ("h", [2, 1])):
        rows = found(t_env, f"SELECT id FROM VECTOR_SEARCH(TABLE {table}, DESCRIPTOR({column}), ARRAY[3, 4.1], 5)")
        assert [row[0] for row in rows] == ids


def test_named_vectors_and_ids_of_qdrant(tmp_path: Path) -> None:
    models = pytest.importorskip("qdrant_client").models
    vectors = {
        "v": models.VectorParams(size=2, distance=models.Distance.EUCLID),
        "w": models.VectorParams(size=3, distance=models.Distance.DOT),
    }
    options = create_collection(tmp_path, "l2", [], vectors)
    columns = f"id STRING, v ARRAY<DOUBLE>, w ARRAY<DOUBLE>, tags ARRAY<STRING>, {KEY}"
    t_env = environment()
    declare(t_env, options, columns=columns)
    declare(t_env, options.replace("l2", "dot"), "products", columns)
    first, second, third = (f"f47ac10b-58cc-4372-a567-0e02b2c3d47{digit}" for digit in "012")
    no_vector = "CAST(NULL AS ARRAY<DOUBLE>)"
    t_env.execute_sql(
        f"INSERT INTO t VALUES ('{first}', ARRAY[1, 0], ARRAY[1, 2, 3], ARRAY['a', 'b']), "
        f"('{second}', ARRAY[3, 4], {no_vector}, ARRAY['c']), ('{third}', {no_vector}, ARRAY[0, 0, 0], ARRAY['d'])"
    ).wait()
    by_distance = "SELECT id, v, w, tags, score FROM VECTOR_SEARCH(TABLE t, DESCRIPTOR(v), ARRAY[0, 0], 9)"
    assert found(t_env, by_distance) == [
        (first, [1.0, 0.0], [1.0, 2.0, 3.0], ["a", "b"], 1.0),
        (second, [3.0, 4.0], None, ["c"], 5.0),
    ]
    by_product = "SELECT id, v, score FROM VECTOR_SEARCH(TABLE products, DESCRIPTOR(w), ARRAY[1, 1, 1], 9)"
    assert found(t_env, by_product) == [(first, [1.0, 0.0], 6.0), (third, None, 0.0)]
    with pytest.raises(PenstockError, match="vector 'w' of collection drinks of Qdrant is compared by Dot"):
        found(t_env, by_product.replace("products", "t"))
    with pytest.raises(PenstockError, match="'tea' is no id of a point of Qdrant"):
        t_env.execute_sql("INSERT INTO t VALUES ('tea', ARRAY[1, 0], ARRAY[1, 2, 3], ARRAY['a'])").wait()


@pytest.mark.filterwarnings("ignore:Exception ignored in.*FileIO:pytest.PytestUnraisableExceptionWarning")
def test_a_folder_of_qdrant_that_another_process_has_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = create_collection(tmp_path, "l2", ROWS)
    t_env = environment()
    declare(t_env, options)
    monkeypatch.setattr(qdrant_store, "_LOCK_WAIT_S", 0)
    qdrant = pytest.importorskip("qdrant_client")
    client = qdrant.QdrantClient(path=str(tmp_path / "qdrant"))
    with pytest.raises(PenstockError, match=r"is open in another process .* so run a server, and set 'url'"):
        found(t_env, "SELECT id FROM VECTOR_SEARCH(TABLE t, DESCRIPTOR(v), ARRAY[1, 0], 1)")
    client.close()
    assert found(t_env, "SELECT id FROM VECTOR_SEARCH(TABLE t, DESCRIPTOR(v), ARRAY[2, 0], 1)") == [(1,)]


class QdrantServer(BaseHTTPRequestHandler):
    """Answers the requests of Qdrant's REST API that a client of its package makes, from memory."""

    client: Any = None
    keys: ClassVar[set[str | None]] = set()

    def do_GET(self) -> None:
        if self.path == "/":
            return self.answer({"title": "qdrant", "version": "1.20.0"})
        return self.answer({"result": self.client.get_collection("drinks").model_dump(mode="json")})

    def do_POST(self) -> None:
        self.keys.add(self.headers["api-key"])
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "delete" in self.path:
            self.client.delete("drinks", points_selector=request["points"])
        elif "query" in self.path:
            query = request["query"]
            vector = query["nearest"] if isinstance(query, dict) else query
            points = self.client.query_points(
                "drinks", query=vector, limit=request["limit"], with_vectors=True, with_payload=True
            ).points
            return self.answer({"result": {"points": [point.model_dump(mode="json") for point in points]}})
        else:
            self.client.upsert("drinks", points=[self.point(**point) for point in request["points"]])
        return self.answer({"result": {"operation_id": 1, "status": "completed"}})

    do_PUT = do_POST

    def answer(self, content: Any) -> None:
        body = json.dumps({"status": "ok", "time": 0.0, **content}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass

    @staticmethod
    def point(**fields: Any) -> Any:
        return pytest.importorskip("qdrant_client").models.PointStruct(**fields)


@pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection")
def test_a_server_of_qdrant() -> None:
    qdrant = pytest.importorskip("qdrant_client")
    QdrantServer.client = qdrant.QdrantClient(":memory:", force_disable_check_same_thread=True)
    params = qdrant.models.VectorParams(size=2, distance=qdrant.models.Distance.COSINE)
    QdrantServer.client.create_collection("drinks", vectors_config=params)
    server = HTTPServer(("127.0.0.1", 0), QdrantServer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        t_env = environment()
        url = f"http://127.0.0.1:{server.server_port}"
        declare(t_env, f"'connector' = 'qdrant', 'url' = '{url}', 'api-key' = 'drink me', 'collection' = 'drinks'")
        t_env.execute_sql("INSERT INTO t VALUES (1, ARRAY[1, 0], 'x', 1, TRUE), (2, ARRAY[1, 1], 'y', 2, TRUE)").wait()
        rows = found(t_env, "SELECT id, body, score FROM VECTOR_SEARCH(TABLE t, DESCRIPTOR(v), ARRAY[0, 2], 5)")
        assert rows == [(2, "y", pytest.approx(ROOT)), (1, "x", 0.0)]
    finally:
        server.shutdown()
        server.server_close()
    assert QdrantServer.keys == {"drink me"}
    with pytest.raises(PenstockError, match=f"opening collection drinks of Qdrant at {url} failed"):
        found(t_env, "SELECT id, body, score FROM VECTOR_SEARCH(TABLE t, DESCRIPTOR(v), ARRAY[0, 2], 5)")


@pytest.mark.parametrize(
    ("store", "columns", "changes", "message"),
    [
        ("vec0", COLUMNS, ("cosine", "l2"), "is compared by cosine, and 'vector.metric' of table"),
        ("vec0", COLUMNS, ("cosine", "dot"), "sqlite-vec has no inner product"),
        ("vec0", COLUMNS, ("drinks", "nothing"), "has no table nothing"),
        ("vec0", COLUMNS, ("store.db", "absent.db"), "opening of SQLite's table drinks in"),
        ("vec0", COLUMNS, ("'vector.metric'", "'vector.index'"), "Unsupported options of table"),
        ("vec0", f"id BIGINT, v ARRAY<FLOAT>, price DECIMAL(5, 2), {KEY}", ("", ""), "declare it as STRING"),
        ("vec0", f"id BIGINT, v ARRAY<FLOAT>, tags ARRAY<STRING>, {KEY}", ("", ""), "its arrays are vectors"),
        ("qdrant", COLUMNS, ("cosine", "l2"), "compared by Cosine, and 'vector.metric' of table"),
        ("qdrant", COLUMNS, ("'drinks'", "'nothing'"), "opening collection nothing of Qdrant at"),
        ("qdrant", COLUMNS, ("'path'", "'api-key'"), "takes one of the options 'url' and 'path'"),
        ("qdrant", f"id DOUBLE, v ARRAY<FLOAT>, {KEY}", ("", ""), "is the id of a point of Qdrant"),
        ("qdrant", "id INT, v ARRAY<FLOAT>, w ARRAY<FLOAT>", ("", ""), "needs exactly one column of type ARRAY<FLOAT>"),
        ("pgvector", COLUMNS, ("drinks", "nothing"), "has no table"),
        ("pgvector", COLUMNS, ("drinks", "arrays"), "column 'v' of table default_catalog.default_database.t is real[]"),
        ("pgvector", COLUMNS, ("'pgvector'", "'hnsw'"), "hnsw"),
    ],
)
def test_errors(
    tmp_path: Path, request: pytest.FixtureRequest, store: str, columns: str, changes: tuple[str, str], message: str
) -> None:
    if store == "pgvector":
        database = Postgres(request.getfixturevalue("server"))
        options = database.create(tmp_path, "cosine", ROWS)
        database.execute("CREATE TABLE arrays (id int8, v real[], body text, price float8, stocked bool)")
    else:
        options = {"vec0": create_virtual, "qdrant": create_collection}[store](tmp_path, "cosine", ROWS)
    t_env = environment()
    declare(t_env, options.replace(*changes), columns=columns)
    with pytest.raises(PenstockError) as error:
        found(t_env, "SELECT * FROM VECTOR_SEARCH(TABLE t, DESCRIPTOR(v), ARRAY[1, 0], 2)")
    assert message in str(error.value)


def test_what_connectors_of_stores_refuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    t_env = environment()
    for name, options in (("a", create_virtual(tmp_path, "l2", ROWS)), ("b", create_collection(tmp_path, "l2", ROWS))):
        declare(t_env, options, name)
        with pytest.raises(PenstockError, match="are searched by VECTOR_SEARCH and written by INSERT, and not read"):
            t_env.explain_sql(f"SELECT * FROM {name}")
        declare(t_env, options, f"{name}_keyless", COLUMNS.replace(f", {KEY}", ""))
        with pytest.raises(PenstockError, match="needs a PRIMARY KEY to be written"):
            t_env.explain_sql(f"INSERT INTO {name}_keyless VALUES (1, ARRAY[1, 0], 'x', 1, TRUE)")
    with pytest.raises(PenstockError, match="-1 is no id of a point of Qdrant"):
        t_env.execute_sql("INSERT INTO b VALUES (-1, ARRAY[1, 0], 'x', 1, TRUE)").wait()
    for module, name, package in (("apsw", "a", "apsw"), ("qdrant_client", "b", "qdrant-client")):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(
            PenstockError, match=rf'needs the package {package}: pip install "penstock-streams\[(sqlite-vec|qdrant)\]"'
        ):
            found(t_env, f"SELECT * FROM VECTOR_SEARCH(TABLE {name}, DESCRIPTOR(v), ARRAY[1, 0], 2)")


@pytest.mark.slow
@pytest.mark.spark
def test_batches_search_in_the_tasks_of_spark(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    t_env = environment(is_batch=True)
    declare(t_env, create_virtual(tmp_path, "cosine", ROWS), "virtual")
    declare(t_env, create_collection(tmp_path, "cosine", ROWS), "points")
    declare(t_env, Postgres(request.getfixturevalue("server")).create(tmp_path, "cosine", ROWS), "relation")
    vectors = "(VALUES (1, ARRAY[CAST(0 AS FLOAT), 2]), (2, ARRAY[CAST(-1 AS FLOAT), 1])) AS q(qid, d)"
    for name in ("virtual", "points", "relation"):
        t_env.execute_sql(
            f"INSERT INTO {name} VALUES (8, ARRAY[0, 1], 'new', 1, TRUE), (9, ARRAY[1, 2], 'new', 1, TRUE)"
        ).wait()
        call = f"LATERAL TABLE(VECTOR_SEARCH(TABLE {name}, DESCRIPTOR(v), q.d, 3))"
        rows = found(t_env, f"SELECT qid, id, body FROM {vectors}, {call} WHERE id > 2")
        assert sorted(rows) == [(1, 8, "new"), (1, 9, "new"), (2, 3, "west"), (2, 8, "new")]
