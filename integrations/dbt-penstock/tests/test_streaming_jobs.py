"""Streaming jobs: unchanged, changed, refreshed, and killed together with the gateway."""

import json
import signal
import time
from pathlib import Path

import pytest
from dbt.tests.util import run_dbt, write_file

WAIT_SECONDS = 60

MODEL = """
{{{{ config(materialized='streaming_job', job_options={{'execution.checkpointing.interval': '500 ms'}}) }}}}
select shop, {what} as total
from {{{{ source('raw', 'sales') }}}}
"""
COUNTS = MODEL.format(what="count(*) over (partition by shop order by moment)")
COUNTS_FROM_100 = MODEL.format(what="count(*) over (partition by shop order by moment) + 100")
SUMS = MODEL.format(what="cast(sum(amount) over (partition by shop order by moment) as bigint)")
WRONG = MODEL.format(what="count(*) over (partition by shop order by nothing)")

SOURCES = """
sources:
  - name: raw
    schema: "{{{{ target.schema }}}}"
    tables:
      - name: sales
        config:
          meta:
            penstock:
              connector: filesystem
              with:
                path: {path}
                format: json
                source.monitor-interval: 200 ms
        columns:
          - {{name: shop, data_type: STRING}}
          - {{name: amount, data_type: INT}}
          - {{name: moment, data_type: AS PROCTIME()}}
"""


class Shop:
    """The input of the model, and its output as readers see it."""

    def __init__(self, project, folder: Path) -> None:
        self.project = project
        self.folder = folder
        folder.mkdir()
        self._files = 0

    def sell(self, *shops: str) -> None:
        """Write a file of sales."""
        self._files += 1
        text = "".join(json.dumps({"shop": shop, "amount": 10}) + "\n" for shop in shops)
        partial = self.folder / f".{self._files}"
        partial.write_text(text)
        partial.rename(self.folder / f"{self._files}.json")

    def jobs(self) -> list[tuple]:
        """Return id, name and status of the jobs that have not ended."""
        with self.project.adapter.connection_named("_jobs"):
            _, cursor = self.project.adapter.add_query("show jobs")
            rows = cursor.fetchall()
        mine = [row[:3] for row in rows if f".{self.project.test_schema}." in row[1]]
        return [row for row in mine if row[2] in ("RUNNING", "RESTARTING", "CREATED")]

    def output(self) -> list[list]:
        """Return the rows of the sink that a reader sees, as the catalog declares it now."""
        with self.project.adapter.connection_named("_output"):
            _, cursor = self.project.adapter.add_query(f"show create table dbt.`{self.project.test_schema}`.totals")
            text = cursor.fetchall()[0][0]
        path = Path(text.partition("'path' = '")[2].partition("'")[0])
        files = [file for file in path.rglob("*") if file.is_file() and not file.name.startswith((".", "_"))]
        rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        return sorted([row["shop"], row["total"]] for row in rows)

    def wait_for(self, rows: list[list]) -> None:
        """Wait until a reader sees these rows, and no others."""
        end = time.monotonic() + WAIT_SECONDS
        while self.output() != sorted(rows):
            assert time.monotonic() < end, f"expected {sorted(rows)}, there are {self.output()}; {self.jobs()}"
            time.sleep(0.2)


class Streaming:
    @pytest.fixture(scope="class")
    def sales_folder(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        return tmp_path_factory.mktemp("sales") / "in"

    @pytest.fixture(scope="class")
    def models(self, sales_folder: Path):
        return {"totals.sql": COUNTS, "sources.yml": SOURCES.format(path=sales_folder)}

    @pytest.fixture(scope="class")
    def project_config_update(self):
        return {"on-run-start": "{{ create_sources() }}"}

    @pytest.fixture
    def shop(self, project, sales_folder: Path):
        yield Shop(project, sales_folder)
        with project.adapter.connection_named("_end"):
            project.adapter.drop_schema(project.adapter.Relation.create("dbt", project.test_schema))


def change(project, model: str) -> None:
    write_file(model, project.project_root, "models", "totals.sql")


class TestStreamingJob(Streaming):
    def test_keeps_its_state(self, project, shop: Shop) -> None:
        shop.sell("a", "b", "a")
        assert "begins" in run_dbt()[-1].message
        shop.wait_for([["a", 1], ["a", 2], ["b", 1]])
        (first,) = shop.jobs()

        # unchanged: the same job
        assert f"job {first[0]} unchanged: RUNNING" in run_dbt()[-1].message
        assert shop.jobs() == [first]

        # other text, the same plan
        change(project, COUNTS.replace("select shop", "select  -- nothing new\n shop"))
        assert "unchanged" in run_dbt()[-1].message
        assert shop.jobs() == [first]

        # stopped with a savepoint, and resumed from it
        run_dbt(["run-operation", "stop_streaming_job", "--args", "model: totals"])
        assert shop.jobs() == []
        assert "resumes: RUNNING" in run_dbt()[-1].message
        (first,) = shop.jobs()

        # changed, and the state fits: the counts go on
        change(project, COUNTS_FROM_100)
        assert "continues with the changed query" in run_dbt()[-1].message
        (second,) = shop.jobs()
        assert second[0] != first[0]
        assert second[1] == first[1]
        shop.sell("a", "b")
        shop.wait_for([["a", 1], ["a", 2], ["b", 1], ["a", 103], ["b", 102]])

        # changed, and the state does not fit: an error that names it, and the job goes on
        change(project, SUMS)
        failed = run_dbt(expect_pass=False)[-1]
        assert "state of its job does not fit" in failed.message
        assert "--full-refresh" in failed.message
        assert "Over(partitionBy=[shop], orderBy=[moment ASC], RANGE, select=[COUNT(*)])" in failed.message
        assert "select=[SUM(amount)]" in failed.message
        assert shop.jobs() == [second]

        # a query that is wrong changes nothing either, also with a refresh
        change(project, WRONG)
        run_dbt(["run", "--full-refresh"], expect_pass=False)
        assert shop.jobs() == [second]

        # a change that fails only when its job starts: the query before goes on with its state
        change(project, COUNTS.replace("'500 ms'", "'500 ms', 'pipeline.max-parallelism': '64'"))
        failed = run_dbt(expect_pass=False)[-1]
        assert "its keyed state was written with max parallelism 128, the job has 64" in failed.message
        (again,) = shop.jobs()
        assert f"The query that ran before goes on with its state, as job {again[0]}." in failed.message
        shop.sell("b")
        shop.wait_for([["a", 1], ["a", 2], ["b", 1], ["a", 103], ["b", 102], ["b", 103]])
        change(project, COUNTS_FROM_100)
        assert f"job {again[0]} unchanged: RUNNING" in run_dbt()[-1].message

        # a full refresh begins at the beginning, and its output takes the place of the one before
        change(project, SUMS)
        assert "begins anew" in run_dbt(["run", "--full-refresh"])[-1].message
        (third,) = shop.jobs()
        assert third[1].endswith("#2")
        shop.wait_for([["a", 10], ["a", 20], ["a", 30], ["b", 10], ["b", 20], ["b", 30]])

        # a model that becomes something else does not lose its state unasked
        change(project, COUNTS.replace("streaming_job", "view"))
        failed = run_dbt(expect_pass=False)[-1]
        assert "was a streaming job, whose state would be lost" in failed.message
        assert shop.jobs() == [third]


class TestBoundedJob(Streaming):
    @pytest.fixture(scope="class")
    def models(self, sales_folder: Path):
        bounded = SOURCES.format(path=sales_folder).replace("                source.monitor-interval: 200 ms\n", "")
        return {"totals.sql": COUNTS, "sources.yml": bounded}

    def test_has_nothing_left_to_do(self, project, shop: Shop) -> None:
        shop.sell("a", "b", "a")
        run_dbt()
        shop.wait_for([["a", 1], ["a", 2], ["b", 1]])
        end = time.monotonic() + WAIT_SECONDS
        while shop.jobs():
            assert time.monotonic() < end
            time.sleep(0.2)
        assert "FINISHED" in run_dbt()[-1].message
        assert "unchanged: FINISHED" in run_dbt()[-1].message
        change(project, COUNTS_FROM_100)
        assert "has reached the end of its input" in run_dbt(expect_pass=False)[-1].message
        shop.wait_for([["a", 1], ["a", 2], ["b", 1]])
        run_dbt(["run", "--full-refresh"])
        shop.wait_for([["a", 101], ["a", 102], ["b", 101]])


class TestKilledGateway(Streaming):
    def test_loses_no_state_and_repeats_no_row(self, project, shop: Shop, gateway) -> None:
        if not hasattr(gateway, "end"):
            pytest.skip("kills the gateway, so it needs one of its own: unset PENSTOCK_GATEWAY_PORT")
        shop.sell("a", "b")
        run_dbt()
        shop.wait_for([["a", 1], ["b", 1]])
        rows = [["a", 1], ["b", 1]]
        for count, end in enumerate((signal.SIGKILL, signal.SIGTERM, signal.SIGKILL), 2):
            shop.sell("a")
            gateway.end(end)
            gateway.start()
            change(project, COUNTS_FROM_100 if count == 3 else COUNTS)
            assert run_dbt()[-1].message
            shop.sell("b")
            more = 100 if count == 3 else 0
            rows += [["a", count + more], ["b", count + more]]
            # The row of `a` may have been counted before the end.
            end_time = time.monotonic() + WAIT_SECONDS
            while len(shop.output()) < len(rows) and time.monotonic() < end_time:
                time.sleep(0.2)
            counted = [[name, total % 100] for name, total in shop.output()]
            assert sorted(counted) == sorted([name, total % 100] for name, total in rows)
