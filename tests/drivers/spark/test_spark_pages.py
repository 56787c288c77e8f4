"""What Spark's own pages say of Penstock's workers, and where they are; tests/server/page reads them on Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.drivers import running_job as job_pages
from penstock.drivers.spark.handle import PROXY_BASE, SparkPages, described

SPARK = "http://driver:4040"


def test_a_link_begins_with_two_slashes_as_spark_shows_no_other() -> None:
    assert described("Penstock job words: worker-1", "http://driver:8081/#/jobs/ab", SPARK) == (
        'Penstock job words: worker-1, <a href="//driver:8081/#/jobs/ab">http://driver:8081/#/jobs/ab</a>'
    )


def test_a_name_is_no_markup() -> None:
    assert described("Penstock job <b> & co", None, SPARK) == "Penstock job <b> & co"
    linked = described("Penstock job <b> & co", "http://driver:8081/", SPARK)
    assert linked.startswith("Penstock job &lt;b&gt; &amp; co, <a")


@pytest.mark.parametrize("spark_ui", [None, "https://driver:4440"])
def test_where_a_link_would_lead_elsewhere_the_address_is_text(spark_ui: str | None) -> None:
    page = "http://driver:8081/#/jobs/ab"
    assert described("Penstock job words", page, spark_ui) == f"Penstock job words, {page}"


class FakeContext:
    """A Spark context with pages and the jobs of one group."""

    def __init__(self, url: str | None, jobs: tuple[int, ...] = (), proxy_base: str | None = None) -> None:
        self.uiWebUrl = url
        self._jobs = jobs
        system = SimpleNamespace(getProperty={PROXY_BASE: proxy_base}.get, getenv=lambda _: None)
        self._jvm = SimpleNamespace(System=system)

    def statusTracker(self) -> Any:
        return SimpleNamespace(getJobIdsForGroup=lambda tag: list(self._jobs) if tag == "tag" else [])


def pages(*settings: Any) -> SparkPages:
    return SparkPages(cast(Any, FakeContext(*settings)))


def test_the_spark_job_of_a_worker_is_its_groups_newest() -> None:
    assert pages(SPARK, (3, 7)).of_group("tag") == f"{SPARK}/jobs/job/?id=7"
    assert pages(SPARK, (3, 7)).of_group("another") is None


def test_where_spark_has_no_pages_there_are_no_addresses() -> None:
    for without in (SparkPages(None), pages(None, (3,))):
        assert (without.url, without.of_group("tag")) == (None, None)


def test_a_description_names_the_job_and_links_to_it_unless_a_proxy_is_before_spark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_pages, "pages", [lambda _: None, lambda job_id: f"http://driver:8081/#/jobs/{job_id}"])
    link = '<a href="//driver:8081/#/jobs/ab">http://driver:8081/#/jobs/ab</a>'
    assert pages(SPARK).describe("words", "ab", "worker-1") == f"Penstock job words: worker-1, {link}"
    assert pages(SPARK).describe("words", "ab") == f"Penstock job words, {link}"
    proxied = pages(SPARK, (), "/proxy/application_1")
    assert proxied.describe("words", "ab") == "Penstock job words, http://driver:8081/#/jobs/ab"
    assert SparkPages(None).describe("words", "ab") == "Penstock job words, http://driver:8081/#/jobs/ab"


def test_a_description_names_the_job_where_nobody_serves_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_pages, "pages", [])
    assert pages(SPARK).describe("words", "ab", "worker-1") == "Penstock job words: worker-1"
