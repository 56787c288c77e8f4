"""Names that are short and never lost, and numbers that can be compared."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect
from tests.server.page.mock import answers
from tests.server.page.mock.jobs import Job
from tests.server.page.mock.server import World

pytestmark = pytest.mark.slow

Opens = Callable[..., Page]
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
STEPS = (
    "Join(joinType=INNER, where=(customer = id))",
    "Calc(select=[region, price], where=(price > 0.1))",
)


@pytest.fixture
def job(world: World) -> Job:
    return world.jobs[0]


def test_the_vertices_of_a_job_are_a_table_below_its_graph(open_page: Opens, job: Job) -> None:
    page = open_page(f"#/jobs/{job.id}/graph")
    table = page.get_by_role("region", name="Vertices", exact=True).last
    expect(table.get_by_role("row")).to_have_count(1 + len(job.vertices))
    row = table.get_by_role("row", name="Enrich orders with customers")
    # running, its parallelism, busy, back-pressured, records in and out, bytes in and out, the start, the duration
    expect(row).to_contain_text(
        re.compile(
            r"running4\d+ %0 %\d+,\d{3},\d{3}\d+,\d{3},\d{3}[\d.]+ GB[\d.]+ GB(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d50 min"
        )
    )
    page.get_by_role("button", name="Records out").click()
    expect(table.get_by_role("row").nth(1)).to_contain_text("Late orders")
    row.get_by_role("link").click()
    expect(page.get_by_role("region", name="Vertex Enrich orders with customers")).to_be_visible()
    expect(table.locator("tr.current")).to_contain_text("Enrich orders")


def test_what_the_operators_of_a_vertex_do_is_said_on_it_and_beside_it(open_page: Opens, job: Job) -> None:
    job.vertices[2].steps = STEPS
    page = open_page(f"#/jobs/{job.id}/graph/{job.vertices[2].id}/subtasks")
    node = page.get_by_role("region", name="Job graph").get_by_role("link", name="Enrich orders")
    expect(node).to_have_attribute("title", "\n".join([job.vertices[2].name, "", *STEPS]))
    drawer = page.get_by_role("region", name="Vertex Enrich orders with customers")
    expect(drawer.get_by_role("list", name="What its operators do").get_by_role("listitem")).to_have_text(STEPS)
    # Steps that say no more than the name are not said again.
    node = page.get_by_role("region", name="Job graph").get_by_role("link", name="Window: revenue")
    node.click()
    expect(page.get_by_role("region", name="Vertex Window: revenue")).to_be_visible()
    expect(page.get_by_role("list", name="What its operators do")).to_have_count(0)


def test_a_job_of_sql_is_named_without_the_paths_of_its_tables(open_page: Opens, job: Job) -> None:
    job.name = "insert-into_default_catalog.default_database.revenue,lake.sales.late"
    page = open_page()
    link = page.get_by_role("link", name="insert-into_revenue,late")
    expect(page.get_by_role("cell").filter(has=link)).to_have_attribute("title", job.name)
    link.click()
    expect(page.get_by_role("heading", name="insert-into_revenue,late")).to_have_attribute("title", job.name)
    expect(page).to_have_title(re.compile("^insert-into_revenue,late · "))
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("heading", name="Cancel insert-into_revenue,late?")).to_be_visible()


def test_workers_are_named_with_their_job(open_page: Opens, world: World) -> None:
    page = open_page("#/workers")
    row = page.get_by_role("row", name="worker-2")
    row.get_by_role("link", name=world.jobs[0].name).click()
    expect(page.get_by_role("heading", name=world.jobs[0].name)).to_be_visible()


def test_attempts_are_counted_where_there_was_more_than_one(open_page: Opens, world: World) -> None:
    for job, columns in ((world.jobs[0], 1), (world.jobs[1], 0)):
        page = open_page(f"#/jobs/{job.id}/graph/{job.vertices[1].id}/subtasks")
        expect(page.get_by_role("region", name="Subtasks").get_by_role("row").nth(1)).to_contain_text("running")
        expect(page.get_by_role("columnheader", name="Attempt")).to_have_count(columns)


def test_numbers_have_one_form(open_page: Opens, job: Job) -> None:
    page = open_page(f"#/jobs/{job.id}/graph/{job.vertices[2].id}/metrics")
    row = page.get_by_role("region", name="Metrics, over all subtasks").get_by_role("row")
    cells = row.filter(has_text="numRecordsInPerSecond").get_by_role("cell")
    expect(cells).to_have_text(["numRecordsInPerSecond", *[re.compile(r"^\d{2},\d{3}$")] * 4])
    cells = row.filter(has_text="inPoolUsage").get_by_role("cell")
    expect(cells).to_have_text(["buffers.inPoolUsage", *[re.compile(r"^0\.\d{2,4}$|^1$")] * 4])


def test_no_number_of_bytes_has_a_fraction(open_page: Opens, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    made = answers.build_figures
    monkeypatch.setattr(answers, "build_figures", lambda *of: {**made(*of), "processed_data": 3})
    page = open_page(f"#/jobs/{job.id}/checkpoints")
    row = page.get_by_role("region", name="Figures of all completed checkpoints").get_by_role("row", name="processed")
    expect(row.get_by_role("cell")).to_have_text(["In flight, processed", *[re.compile(r"^\d B$")] * 6])


def test_an_axis_has_room_for_its_numbers(open_page: Opens, job: Job) -> None:
    job.vertices[3].lag_ms = 60_000_000
    page = open_page(f"#/jobs/{job.id}/metrics")
    chart = page.get_by_role("figure").filter(has_text="Watermark lag")
    plot = chart.locator(".u-over")
    expect(plot).to_be_visible()
    room = """plot => {
        const paper = document.createElement('canvas').getContext('2d')
        paper.font = '11px system-ui, sans-serif'
        return plot.offsetLeft - paper.measureText('16 h 40 min').width
    }"""
    page.wait_for_function(
        "() => document.querySelector('.charts').innerText.includes('16 h 40 min')"
    )  # the first figures have come
    assert plot.evaluate(room) >= 5


def test_a_checkpoint_that_failed_is_no_alarm_once_another_has_completed(open_page: Opens, job: Job) -> None:
    known = answers.checkpoints(job)["latest"]
    page = open_page(f"#/jobs/{job.id}/checkpoints")
    note = page.locator(".note", has_text="It timed out.")
    expect(note).to_contain_text(f"Checkpoint {known['failed']['id']} failed at")
    expect(note).to_contain_text(re.compile(r"checkpoint \d+ has completed since"))
    expect(note).not_to_have_class(re.compile("bad"))


def test_on_a_phone_each_row_of_a_table_shows_all_its_values(open_page: Opens, job: Job) -> None:
    page = open_page(f"#/jobs/{job.id}/graph", **PHONE)
    row = page.get_by_role("region", name="Vertices", exact=True).last.get_by_role("row", name="Enrich orders")
    cells = row.get_by_role("cell")
    expect(cells).to_have_count(11)
    for cell in cells.all():
        box = cell.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 390
    labels = "cells => cells.map(cell => getComputedStyle(cell, '::before').content)"
    assert '"Bytes out"' in cells.evaluate_all(labels)


def test_on_a_phone_a_long_table_shows_that_there_is_more_beside(open_page: Opens, job: Job) -> None:
    job.vertices[2].parallelism = 200
    page = open_page(f"#/jobs/{job.id}/graph/{job.vertices[2].id}/subtasks", **PHONE)
    table = page.get_by_role("region", name="Subtasks")
    expect(table.get_by_role("row").nth(1)).to_contain_text("running")
    assert "gradient" in table.evaluate("table => getComputedStyle(table).backgroundImage")


def test_on_a_phone_long_names_make_nothing_wider(open_page: Opens, world: World, job: Job) -> None:
    job.vertices[4].name = " -> ".join(["lake.sales.orders_of_all_regions"] * 6)
    page = open_page(**PHONE)
    for view in ("graph", "state", "metrics", "timeline"):
        page.evaluate("address => { location.hash = address }", f"#/jobs/{job.id}/{view}")
        expect(page.get_by_text("lake.sales.orders_of_all_regions").first).to_be_attached()
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 390, view
