"""What can be asked of a job on the page: only after a question, and with what becomes of it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect
from tests.server.page.mock.server import World

Opens = Callable[..., Page]


@pytest.fixture
def page(open_page: Opens, world: World) -> Page:
    return open_page(f"#/jobs/{world.jobs[0].id}/graph")


def ask(page: Page, action: str) -> None:
    page.get_by_role("group", name="What to do with the job").get_by_role("button", name=action).click()


def outcome(page: Page, text: str | re.Pattern[str]) -> None:
    expect(page.get_by_role("region", name="What you asked for")).to_contain_text(text)


def test_a_savepoint_goes_where_it_is_sent(page: Page, world: World) -> None:
    ask(page, "Savepoint")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("The job goes on.")
    dialog.get_by_label("Directory").fill("file:/srv/savepoints")
    dialog.get_by_role("button", name="Take savepoint").click()
    outcome(page, "complete: file:/srv/savepoints/savepoint-")
    body = {"target-directory": "file:/srv/savepoints", "cancel-job": False, "formatType": "CANONICAL"}
    assert world.requests == [("POST", f"/jobs/{world.jobs[0].id}/savepoints", body)]


def test_a_savepoint_that_fails_says_why(page: Page, world: World) -> None:
    world.fails_savepoints = True
    ask(page, "Savepoint")
    page.get_by_role("button", name="Take savepoint").click()
    outcome(page, "Savepoint failed")
    outcome(page, "/var/savepoints is full")


def test_a_checkpoint_now(page: Page, world: World) -> None:
    ask(page, "Checkpoint")
    page.get_by_role("button", name="Take checkpoint").click()
    outcome(page, re.compile(r"complete: checkpoint \d+"))
    assert [body for _, _, body in world.requests] == [{"checkpointType": "CONFIGURED"}]


@pytest.mark.parametrize("drain", [False, True])
def test_stop_with_a_savepoint(page: Page, world: World, drain: bool) -> None:
    ask(page, "Stop")
    if drain:
        page.get_by_label("Drain").check()
        expect(page.get_by_role("dialog")).to_contain_text("windows would fire twice")
    page.get_by_role("dialog").get_by_role("button", name="Drain and stop" if drain else "Stop", exact=True).click()
    outcome(page, "stopped; savepoint: file:/var/savepoints")
    assert [body["drain"] for _, _, body in world.requests] == [drain]
    expect(page.locator(".job-head")).to_contain_text("finished")


def test_cancel_says_what_is_lost_and_does_nothing_before_it_is_confirmed(page: Page, world: World) -> None:
    ask(page, "Cancel")
    expect(page.get_by_role("dialog")).to_contain_text("no savepoint is taken")
    page.get_by_role("button", name="Do nothing").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert world.requests == []
    ask(page, "Cancel")
    page.get_by_role("button", name="Cancel the job").click()
    outcome(page, "the job is CANCELED")
    expect(page.locator(".job-head")).to_contain_text("canceled")


def test_rescale_one_vertex_and_see_it(page: Page, world: World) -> None:
    window = world.jobs[0].vertices[3]
    ask(page, "Rescale")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Rescale")).to_be_disabled()
    dialog.get_by_label(window.name).fill("7")
    dialog.get_by_role("button", name="Rescale one vertex").click()
    outcome(page, "the job runs at its new parallelism")
    method, _, body = world.requests[0]
    assert method == "PUT"
    assert body[window.id] == {"parallelism": {"lowerBound": 1, "upperBound": 7}}
    graph = page.get_by_role("region", name="Job graph")
    expect(graph.get_by_role("link", name=window.name)).to_contain_text("7running")


def test_a_rescaling_that_gets_no_slots_ends(page: Page, world: World) -> None:
    world.lacks_slots = True
    ask(page, "Rescale")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label(world.jobs[0].vertices[3].name).fill("7")
    dialog.get_by_role("button", name="Rescale one vertex").click()
    outcome(page, "the job was not rescaled: it needs 7 slots, and there are 4")


def test_escape_closes_the_question_and_gives_the_keyboard_back(page: Page, world: World) -> None:
    ask(page, "Stop")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("button", name="Stop")).to_be_focused()
    assert world.requests == []
