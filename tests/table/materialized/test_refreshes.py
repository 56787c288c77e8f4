"""Materialized tables through freshness, queries and losses: rows as of a batch, state kept where it is promised."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.servers.waiting import await_true
from tests.table.materialized.shop import COUNTS, Shop

from penstock.base.errors import OperationError, UnsupportedError
from penstock.sql.materialized_tables.definition import Definition
from penstock.sql.statements.materialized_tables import run_refresh
from penstock.table.catalog import ObjectPath


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    yield made
    made.tables.execute_sql("DROP MATERIALIZED TABLE IF EXISTS lake.shop.m")


def await_rows(shop: Shop, *rows: tuple[object, ...]) -> None:
    await_true(lambda: shop.rows() == list(rows), f"the rows never become {rows}")


def alter(shop: Shop, action: str) -> None:
    shop.tables.execute_sql(f"ALTER MATERIALIZED TABLE lake.shop.m {action}")


def create(shop: Shop, clauses: str, query: str = COUNTS) -> None:
    shop.tables.execute_sql(
        f"CREATE MATERIALIZED TABLE lake.shop.m (PRIMARY KEY (k) NOT ENFORCED) {clauses} AS {query}"
    )


def test_state_is_kept_through_freshness_suspension_and_loss(shop: Shop) -> None:
    """The orders before are removed each time: a job without their state would count too few."""
    shop.order([(1, 1), (2, 1), (1, 1)])
    create(shop, "FRESHNESS = INTERVAL '1' SECOND")
    await_rows(shop, (1, 2), (2, 1))
    shop.forget()
    alter(shop, "SET FRESHNESS = INTERVAL '2' SECOND")  # a job in MICRO_BATCH goes on from a savepoint of a stream
    shop.order([(1, 1), (3, 1)])
    await_rows(shop, (1, 3), (2, 1), (3, 1))
    shop.forget()
    alter(shop, "SUSPEND")
    with pytest.raises(OperationError, match="continuous refresh job has been suspended, jobId is"):
        alter(shop, "SUSPEND")
    shop.order([(1, 1)])
    alter(shop, "SET FRESHNESS = INTERVAL '1' SECOND")
    assert shop.rows() == [(1, 3), (2, 1), (3, 1)]
    alter(shop, "RESUME")
    await_rows(shop, (1, 4), (2, 1), (3, 1))
    shop.forget()
    await_true(lambda: any(shop.here.glob("checkpoints/*/chk-*/_metadata")), "there is no checkpoint")
    shop.lose_job()
    with pytest.raises(OperationError, match="is CANCELED"):
        alter(shop, "SUSPEND")
    shop.order([(2, 1)])
    alter(shop, "RESUME")
    await_rows(shop, (1, 4), (2, 2), (3, 1))


def test_another_environment_takes_a_table_over(shop: Shop) -> None:
    """The definition is in the catalog, and the state in the directory of checkpoints."""
    shop.order([(1, 1)])
    create(shop, "FRESHNESS = INTERVAL '1' SECOND")
    await_rows(shop, (1, 1))
    alter(shop, "SUSPEND")
    shop.forget()
    shop.tables = shop.environment()
    shop.order([(1, 1)])
    alter(shop, "RESUME")
    await_rows(shop, (1, 2))


def test_an_append_only_table_goes_on_with_another_query(shop: Shop) -> None:
    """Rows that were written stay, and none comes twice: the job goes on where the one before stopped."""
    files = f"WITH ('connector' = 'filesystem', 'format' = 'json', 'path' = '{shop.here}/out')"
    shop.tables.execute_sql(
        f"CREATE MATERIALIZED TABLE m {files} FRESHNESS = INTERVAL '1' SECOND AS SELECT k, v FROM orders"
    )

    def written() -> list[str]:
        return sorted(
            line for file in shop.here.glob("out/[!.]*") for line in file.read_text().splitlines() if file.is_file()
        )

    shop.order([(1, 5)])
    await_true(lambda: written() == ['{"k":1,"v":5}'], "the first row")
    shop.tables.execute_sql("ALTER MATERIALIZED TABLE m AS SELECT k, v, k + v AS s FROM orders WHERE k > 1")
    shop.order([(1, 6), (2, 7)])
    await_true(lambda: written() == ['{"k":1,"v":5}', '{"k":2,"v":7,"s":9}'], "the second row")
    shop.tables.execute_sql("CREATE TABLE others LIKE orders")
    with pytest.raises(
        UnsupportedError, match="the steps of the new query are others, so no job can go on with the state"
    ):
        shop.tables.execute_sql("ALTER MATERIALIZED TABLE m AS SELECT k, v, k AS s FROM others")
    shop.order([(2, 8)])
    await_true(lambda: len(written()) == 3, "the refused statement changes nothing")
    shop.tables.execute_sql("DROP MATERIALIZED TABLE m")


def test_a_change_whose_job_cannot_begin_is_taken_back(shop: Shop) -> None:
    shop.order([(1, 1)])
    create(shop, "FRESHNESS = INTERVAL '1' SECOND")
    await_rows(shop, (1, 1))
    shop.tables.get_config().set("pipeline.max-parallelism", "64")
    with pytest.raises(OperationError, match=r"max parallelism 128.*so the table is suspended as it was"):
        alter(shop, "SET FRESHNESS = INTERVAL '2' SECOND")
    shop.tables.get_config().reset("pipeline.max-parallelism")
    assert str(shop.definition().freshness) == "INTERVAL '1' SECOND"
    shop.forget()
    alter(shop, "RESUME")
    shop.order([(1, 1)])
    await_rows(shop, (1, 2))


def test_rows_of_a_job_that_is_lost_without_checkpoints_are_not_written_twice(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.tables.get_config().reset("execution.checkpointing.dir")
    files = f"WITH ('connector' = 'filesystem', 'format' = 'json', 'path' = '{tmp_path}/out')"
    shop.tables.execute_sql(
        f"CREATE MATERIALIZED TABLE m {files} FRESHNESS = INTERVAL '1' SECOND AS SELECT k, v FROM orders"
    )
    catalog = shop.tables.get_catalog("default_catalog")
    assert catalog is not None
    shop.lose_job(Definition.read(catalog.get_table(ObjectPath("default_database", "m"))))
    with pytest.raises(UnsupportedError, match="it is not known which rows it has written"):
        shop.tables.execute_sql("ALTER MATERIALIZED TABLE m RESUME")
    shop.tables.execute_sql("DROP MATERIALIZED TABLE m")


@pytest.mark.slow
@pytest.mark.spark
def test_full_refreshes_replace_the_rows(shop: Shop) -> None:
    """The schedule, REFRESH of a partition, a query that cannot run, and the way to a stream and back."""
    shop.environment(is_batch=True).execute_sql("SELECT 1").wait()  # Spark runs before anything waits for a refresh
    shop.order([(1, 1), (2, 2), (1, 3)])
    shop.tables.execute_sql(
        "CREATE MATERIALIZED TABLE lake.shop.days PARTITIONED BY (d) FRESHNESS = INTERVAL '1' DAY AS "
        "SELECT day_of AS d, COUNT(*) AS n FROM orders GROUP BY day_of"
    )
    days = "SELECT * FROM lake.shop.days"
    await_true(lambda: shop.rows(days) == [("2024-01-01", 1), ("2024-01-02", 2)], "the first refresh")
    shop.order([(1, 1), (2, 2)])
    shop.tables.execute_sql("ALTER MATERIALIZED TABLE lake.shop.days REFRESH PARTITION (d = '2024-01-01')")
    assert shop.rows(days) == [("2024-01-01", 2), ("2024-01-02", 2)]
    shop.tables.execute_sql("ALTER MATERIALIZED TABLE lake.shop.days REFRESH")
    assert shop.rows(days) == [("2024-01-01", 2), ("2024-01-02", 3)]
    shop.tables.execute_sql("DROP MATERIALIZED TABLE lake.shop.days")

    shop.tables.execute_sql(
        "CREATE MATERIALIZED TABLE lake.shop.days PARTITIONED BY (d) WITH ('partition.fields.d.date-formatter' = "
        "'yyyy-MM-dd') FRESHNESS = INTERVAL '1' DAY AS SELECT day_of AS d, COUNT(*) AS n FROM orders GROUP BY day_of"
    )
    time = datetime.datetime(2024, 1, 3, tzinfo=datetime.UTC)
    run_refresh(shop.tables._session, ("lake", "shop", "days"), {}, time=time)
    assert shop.rows(days) == [("2024-01-02", 3)]
    shop.tables.execute_sql("DROP MATERIALIZED TABLE lake.shop.days")

    shop.tables.execute_sql("CREATE TABLE same_orders LIKE orders")
    shop.tables.execute_sql(
        "CREATE MATERIALIZED TABLE lake.shop.appended FRESHNESS = INTERVAL '1' SECOND AS SELECT k FROM orders"
    )
    appended = "SELECT k FROM lake.shop.appended"
    await_true(lambda: len(shop.rows(appended)) == 5, "all orders")
    shop.tables.execute_sql("ALTER MATERIALIZED TABLE lake.shop.appended AS SELECT k FROM same_orders WHERE k > 1")
    await_true(lambda: shop.rows(appended) == [(2,), (2,)], "the table is emptied, and the job begins with its sources")
    shop.tables.execute_sql("DROP MATERIALIZED TABLE lake.shop.appended")

    create(shop, "FRESHNESS = INTERVAL '1' SECOND")
    await_rows(shop, (1, 3), (2, 2))
    alter(shop, "AS SELECT k, COUNT(*) AS n, COUNT(*) * 10 AS tens FROM orders GROUP BY k")  # the state fits
    assert shop.rows() == [(1, 3, 30), (2, 2, 20)]
    suffix = shop.definition().name_suffix
    alter(shop, "SET FRESHNESS = INTERVAL '1' HOUR")
    shop.order([(3, 1)])
    alter(shop, "REFRESH")
    assert shop.rows() == [(1, 3, 30), (2, 2, 20), (3, 1, 10)]
    alter(shop, "AS SELECT k, COUNT(*) AS n, COUNT(*) * 100 AS tens FROM orders GROUP BY k")
    alter(shop, "SET FRESHNESS = INTERVAL '1' SECOND")
    assert (shop.definition().savepoint != "", shop.definition().name_suffix) == (True, suffix)
    shop.order([(3, 1)])
    await_rows(shop, (1, 3, 300), (2, 2, 200), (3, 2, 200))
    alter(shop, "AS SELECT k, COUNT(*) AS n, SUM(v) AS tens FROM orders GROUP BY k")  # the state does not fit
    assert (shop.definition().savepoint, shop.definition().name_suffix) == ("", f"{suffix}_1")
    await_rows(shop, (1, 3, 5), (2, 2, 4), (3, 2, 2))
