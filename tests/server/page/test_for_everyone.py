"""The page by keyboard, on a phone, in the dark, for a screen reader, and with a thousand subtasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tests.server.page.browser import AXE
from tests.server.page.mock.server import World

pytestmark = pytest.mark.slow

Opens = Callable[..., Page]
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
SUBTASKS = 1000


def addresses(world: World) -> dict[str, str]:
    """An address for every view."""
    job = world.jobs[0]
    vertex = job.vertices[2].id
    drawer = ["subtasks", "watermarks", "back-pressure", "metrics", "accumulators", "flame-graph"]
    last = int(job.seconds // 10)
    return {
        "jobs": "#/jobs",
        **{f"vertex {tab}": f"#/jobs/{job.id}/graph/{vertex}/{tab}" for tab in drawer},
        "checkpoints": f"#/jobs/{job.id}/checkpoints/{last}/{vertex}",
        "exceptions": f"#/jobs/{job.id}/exceptions",
        "state": f"#/jobs/{job.id}/state/{vertex}",
        "metrics": f"#/jobs/{job.id}/metrics",
        "timeline": f"#/jobs/{job.id}/timeline/{vertex}",
        "configuration": f"#/jobs/{job.id}/configuration",
        "failed job": f"#/jobs/{world.jobs[2].id}/graph",
        "workers": "#/workers",
        "worker": "#/workers/worker-0",
        "log": "#/workers/worker-0/logs/penstock.log",
        "threads": "#/workers/worker-0/threads",
        "job manager": "#/cluster",
    }


def go_to(page: Page, address: str) -> None:
    page.evaluate("address => { location.hash = address }", address)
    page.wait_for_function("() => !document.body.innerText.includes('Asking for the')")
    expect(page.get_by_role("main").get_by_role("heading").first).to_be_visible()


def serious_faults(page: Page) -> list[tuple[str, Any]]:
    # Not as a script of the page: it runs nothing but its own.
    page.evaluate(AXE.read_text())
    found = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [
        (fault["id"], [node["html"][:200] for node in fault["nodes"][:3]])
        for fault in found["violations"]
        if fault["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("look", ["light", "dark"])
def test_axe_finds_no_serious_fault_on_any_view(open_page: Opens, world: World, look: str) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not there: run npm ci in web/")
    page = open_page(color_scheme=look, reduced_motion="reduce")
    faults = {}
    for name, address in addresses(world).items():
        go_to(page, address)
        if found := serious_faults(page):
            faults[name] = found
    go_to(page, addresses(world)["exceptions"])
    for action in ("Savepoint", "Rescale", "Stop", "Cancel"):
        page.get_by_role("button", name=action, exact=True).first.click()
        expect(page.get_by_role("dialog")).to_be_visible()
        if found := serious_faults(page):
            faults[action] = found
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
    assert faults == {}


def test_no_view_is_wider_than_a_phone(open_page: Opens, world: World) -> None:
    page = open_page(**PHONE)
    widths = {}
    for name, address in addresses(world).items():
        go_to(page, address)
        widths[name] = page.evaluate("() => document.documentElement.scrollWidth")
    assert {name: width for name, width in widths.items() if width > 390} == {}


def test_on_a_phone_the_graph_runs_downwards(open_page: Opens, world: World) -> None:
    page = open_page(f"#/jobs/{world.jobs[1].id}/graph", **PHONE)
    nodes = page.get_by_role("region", name="Job graph").get_by_role("link")
    boxes = [nodes.filter(has_text=name).bounding_box() for name in ("Sessions", "Sink: Iceberg")]
    upper, lower = (box["y"] if box else None for box in boxes)
    assert upper is not None
    assert lower is not None
    assert upper < lower


def test_dark_as_the_system_says_until_the_reader_chooses(open_page: Opens) -> None:
    page = open_page(color_scheme="dark")
    html = page.locator("html")
    expect(html).to_have_attribute("data-theme", "dark")
    page.emulate_media(color_scheme="light")
    expect(html).to_have_attribute("data-theme", "light")
    page.get_by_role("button", name="Colours: auto").click()
    page.get_by_role("button", name="Colours: light").click()
    expect(html).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(page.get_by_role("button", name="Colours: dark")).to_be_visible()
    expect(html).to_have_attribute("data-theme", "dark")


def test_nothing_moves_for_those_who_want_that(open_page: Opens, world: World) -> None:
    page = open_page(f"#/jobs/{world.jobs[0].id}/graph", reduced_motion="reduce")
    flowing = page.locator(".edge.flows").first
    expect(flowing).to_be_attached()
    assert flowing.evaluate("edge => getComputedStyle(edge).animationName") == "none"


def test_from_the_job_list_to_a_savepoint_by_keyboard_alone(open_page: Opens, world: World) -> None:
    page = open_page()
    expect(page.get_by_role("link", name="Orders by region")).to_be_visible()

    def tab_to(name: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            label = (
                "() => { const a = document.activeElement; return a.ariaLabel || a.innerText || a.placeholder || '' }"
            )
            if str(page.evaluate(label)).startswith(name):
                return
        raise AssertionError(f"no way to {name} by Tab")

    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    tab_to("Orders by region")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Orders by region")).to_be_visible()
    expect(page.get_by_role("region", name="Job graph").get_by_role("link", name="Enrich orders")).to_be_visible()
    tab_to("Enrich orders with customers")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Close the vertex")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Close the vertex")).to_have_count(0)
    page.evaluate("() => document.activeElement.blur()")
    tab_to("Savepoint")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Directory")).to_be_focused()
    page.keyboard.type("file:/keys")
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="What you asked for")).to_contain_text("complete: file:/keys")


def test_of_a_thousand_subtasks_only_those_in_sight_are_rendered(open_page: Opens, world: World) -> None:
    for vertex in world.jobs[1].vertices:
        vertex.parallelism = SUBTASKS
    job = world.jobs[1]
    page = open_page(f"#/jobs/{job.id}/graph/{job.vertices[1].id}/subtasks")
    table = page.get_by_role("region", name="Subtasks").get_by_role("table")
    expect(table).to_have_attribute("aria-rowcount", str(SUBTASKS + 1))
    assert table.locator("tbody tr").count() < 80
    page.get_by_role("region", name="Subtasks").evaluate("box => { box.scrollTop = box.scrollHeight }")
    last = table.locator(f'tr[aria-rowindex="{SUBTASKS + 1}"]')
    expect(last).to_be_visible()
    expect(last.locator("td").first).to_have_text(str(SUBTASKS - 1))
    assert table.locator("tbody tr").count() < 80
    before = last.inner_text()
    expect(last).not_to_have_text(before, use_inner_text=True)
    table.get_by_role("button", name="Busy").click()
    expect(table.get_by_role("columnheader", name="Busy")).to_have_attribute("aria-sort", "ascending")


def test_nothing_is_asked_while_nobody_looks(open_page: Opens) -> None:
    page = open_page(before=lambda page: page.clock.install())
    expect(page.get_by_role("link", name="Orders by region")).to_be_visible()
    with page.expect_response("**/jobs/overview"):
        page.clock.fast_forward(60_000)
    cover = """covered => {
        Object.defineProperty(document, 'hidden', { get: () => covered, configurable: true })
        document.dispatchEvent(new Event('visibilitychange'))
    }"""
    page.evaluate(cover, True)
    page.wait_for_load_state("networkidle")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.fast_forward(60_000)
    page.evaluate("() => fetch('assets/none')")  # had the page asked for anything, it would have been before this
    assert [url.rpartition("/")[2] for url in asked] == ["none"]
    with page.expect_response("**/jobs/overview"):
        page.evaluate(cover, False)
