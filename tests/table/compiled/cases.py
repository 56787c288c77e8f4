"""Statements whose compiled plans are kept in `plans`, and the tables that they read and write.

`python -m tests.table.compiled.cases` compiles those that have no plan yet. A plan that is there is never written
again, because it stands for the plans that users keep: what no longer reads it breaks theirs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.table import EnvironmentSettings, TableEnvironment

PLANS: Final = Path(__file__).parent / "plans"
ROWS: Final = {
    "orders": [
        "1,tea,2.50,2026-01-01 10:00:01",
        "2,rum,9.00,2026-01-01 10:00:30",
        "3,tea,2.75,2026-01-01 10:01:10",
        "4,gin,7.10,2026-01-01 10:02:00",
        "5,rum,8.00,2026-01-01 10:02:05",
    ],
    "drinks": ["tea,hot", "rum,strong"],
}
TABLES: Final = {
    "orders": "id INT, drink STRING, price DECIMAL(6, 2), ts TIMESTAMP(3), WATERMARK FOR ts AS ts",
    "drinks": "name STRING, kind STRING",
}
WINDOWS: Final = "TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"
INSERTS: Final = {
    "filter": "INSERT INTO texts SELECT UPPER(drink) || '!' FROM orders WHERE price > 2.6 AND id IN (2, 3, 9)",
    "groups": "INSERT INTO counts SELECT drink, COUNT(*), SUM(price) FROM orders GROUP BY drink",
    "distinct": "INSERT INTO numbers SELECT COUNT(DISTINCT drink) FROM orders",
    "join": "INSERT INTO texts SELECT kind FROM orders JOIN drinks ON drink = name",
    "left join": "INSERT INTO texts SELECT COALESCE(kind, drink) FROM orders LEFT JOIN drinks ON drink = name",
    "windows": f"INSERT INTO counts SELECT drink, COUNT(*), MAX(price) FROM {WINDOWS} "
    "GROUP BY drink, window_start, window_end",
    "top": "INSERT INTO texts SELECT drink FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY price DESC) AS n FROM orders) "
    "WHERE n <= 2",
    "deduplication": "INSERT INTO numbers SELECT id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY drink ORDER BY ts) "
    "AS n FROM orders) WHERE n = 1",
    "over": "INSERT INTO counts SELECT drink, id, SUM(price) OVER (PARTITION BY drink ORDER BY ts) FROM orders",
    "pattern": "INSERT INTO numbers SELECT CAST(later AS BIGINT) FROM orders MATCH_RECOGNIZE (ORDER BY ts MEASURES "
    "B.id AS later AFTER MATCH SKIP PAST LAST ROW PATTERN (A B) DEFINE A AS A.drink = 'rum', B AS B.price < A.price)",
    "intervals": "INSERT INTO numbers SELECT a.id FROM orders a, orders b WHERE a.drink = b.drink AND a.id < b.id AND "
    "b.ts BETWEEN a.ts AND a.ts + INTERVAL '90' SECOND",
    "union": "INSERT INTO texts SELECT drink FROM orders UNION SELECT name FROM drinks",
    "semi join": "INSERT INTO texts SELECT name FROM drinks WHERE name IN (SELECT drink FROM orders WHERE price > 8)",
    "values": "INSERT INTO texts SELECT x FROM (VALUES ('a', TRUE), (CAST(NULL AS STRING), FALSE)) AS q(x, y)",
    "variants": "INSERT INTO texts SELECT JSON_STRING(PARSE_JSON('{\"a\":[1.5]}')['a']) FROM drinks",
    "set": "EXECUTE STATEMENT SET BEGIN INSERT INTO texts SELECT drink FROM orders WHERE id < 3; "
    "INSERT INTO numbers SELECT COUNT(*) FROM orders WHERE id < 3; END",
}


def environment(folder: Path) -> TableEnvironment:
    """An environment with the tables; the rows of those that are read are in files of the folder."""
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("parallelism.default", "1")
    tables.get_config().set("table.local-time-zone", "UTC")
    for name, columns in TABLES.items():
        (folder / f"{name}.csv").write_text("\n".join(ROWS[name]) + "\n")
        tables.execute_sql(
            f"CREATE TABLE {name} ({columns}) WITH "
            f"('connector' = 'filesystem', 'path' = '{folder}/{name}.csv', 'format' = 'csv')"
        )
    for name, columns in (
        ("texts", "t STRING"),
        ("numbers", "n BIGINT"),
        ("counts", "k STRING, n BIGINT, total DECIMAL(38, 2)"),
    ):
        tables.execute_sql(f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'print')")
    return tables


def plan_file(name: str) -> Path:
    """Where the plan of a statement is kept."""
    return PLANS / f"{name.replace(' ', '-')}.json"


def main() -> None:
    """Compile the statements that have no plan yet."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        tables = environment(Path(folder))
        # Paths of files differ between machines, so options come from the tables.
        tables.get_config().set("table.plan.compile.catalog-objects", "SCHEMA")
        for name, statement in INSERTS.items():
            if not plan_file(name).exists():
                tables.compile_plan_sql(statement).write_to_file(plan_file(name))


if __name__ == "__main__":
    main()
