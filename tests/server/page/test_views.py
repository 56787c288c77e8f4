"""What the page shows of the jobs of a server."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, expect
from tests.server.page.mock import answers
from tests.server.page.mock.jobs import Job, failure
from tests.server.page.mock.server import World

pytestmark = pytest.mark.slow

Opens = Callable[..., Page]


def job_of(world: World, name: str = "Orders by region") -> Job:
    return next(job for job in world.jobs if job.name == name)


def in_graph(page: Page, name: str) -> Locator:
    return page.get_by_role("region", name="Job graph").get_by_role("link", name=name)


def test_jobs_that_run_and_jobs_that_have_ended(open_page: Opens) -> None:
    page = open_page()
    running, ended = page.get_by_role("region", name="Running jobs"), page.get_by_role("region", name="Ended jobs")
    running, ended = running.get_by_role("table"), ended.get_by_role("table")
    expect(running.get_by_role("link")).to_have_text(["Orders by region", "1 restart", "Sessions of clicks"])
    expect(ended.get_by_role("link")).to_have_text(["Fraud patterns", "2 restarts", "Daily totals"])
    expect(ended.get_by_role("row", name="Fraud patterns")).to_contain_text("failed")
    expect(page).to_have_title("Jobs · Penstock")


def test_the_graph_shows_rates_busy_time_and_lag(open_page: Opens, world: World) -> None:
    job = job_of(world)
    page = open_page(f"#/jobs/{job.id}/graph")
    graph = page.get_by_role("region", name="Job graph")
    expect(graph.get_by_role("link")).to_have_count(len(job.vertices))
    enrich = graph.get_by_role("link", name="Enrich orders with customers")
    expect(enrich).to_contain_text(re.compile(r"busy \d\d %"))
    expect(enrich).to_contain_text(re.compile(r"in [\d.]+ k/s"))
    expect(enrich).to_contain_text(re.compile(r"lag \d"))
    expect(graph.locator(".edge-ship")).to_have_text(["hash", "hash", "hash", "forward", "rebalance"])
    expect(graph.locator(".edge-rate").last).to_have_text(re.compile(r"^\d+/s$"))
    # From left to right: what is upstream is to the left.
    boxes = [graph.get_by_role("link", name=name).bounding_box() for name in ("Source: orders", "Enrich", "Sink:")]
    places = [box["x"] for box in boxes if box]
    assert len(places) == 3
    assert places == sorted(places)


def test_rates_move_by_themselves(open_page: Opens, world: World) -> None:
    page = open_page(f"#/jobs/{job_of(world).id}/graph")
    rate = in_graph(page, "Source: orders from Kafka").locator(".node-line").last
    expect(rate).to_contain_text("k/s")
    before = rate.inner_text()
    expect(rate).not_to_have_text(before)


def test_metrics_that_fail_are_said_to(open_page: Opens, world: World) -> None:
    errors = '{"errors": ["The metrics are away."]}'
    page = open_page(
        f"#/jobs/{job_of(world).id}/graph",
        lambda page: page.route("**/subtasks/metrics?get=*", lambda route: route.fulfill(status=500, body=errors)),
    )
    expect(page.get_by_role("alert")).to_contain_text("The metrics are away. Their rates are made of the job's totals")
    expect(in_graph(page, "Enrich orders with customers")).to_contain_text("k/s")
    page.unroute_all()
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_vertex_has_its_subtasks_and_their_measures(open_page: Opens, world: World) -> None:
    job = job_of(world)
    page = open_page(f"#/jobs/{job.id}/graph/{job.vertices[2].id}/subtasks")
    drawer = page.get_by_role("region", name="Vertex Enrich orders with customers")
    subtasks = drawer.get_by_role("region", name="Subtasks")
    expect(subtasks.get_by_role("row")).to_have_count(1 + job.vertices[2].parallelism)
    expect(subtasks.get_by_role("row").nth(1)).to_contain_text("/s")
    drawer.get_by_role("link", name="Watermarks").click()
    expect(drawer.get_by_role("region", name="Watermarks by subtask").get_by_role("row")).to_have_count(5)
    drawer.get_by_role("link", name="Back pressure").click()
    expect(drawer.get_by_text("Level", exact=True).first).to_be_visible()
    drawer.get_by_role("link", name="Metrics").click()
    drawer.get_by_role("searchbox").fill("poolusage")
    expect(drawer.get_by_role("region", name="Metrics, over all subtasks")).to_contain_text("buffers.inPoolUsage")
    drawer.get_by_role("link", name="Accumulators").click()
    expect(drawer).to_contain_text("unknown customers")
    drawer.get_by_role("link", name="Flame graph").click()
    frame = drawer.get_by_role("button", name="process_element (orders.py), 48 %")
    frame.click()
    expect(drawer.locator(".frame").first).to_have_text("process_element (orders.py)")
    assert page.url.endswith("/flame-graph")


def test_checkpoints_down_to_the_subtask(open_page: Opens, world: World) -> None:
    job = job_of(world)
    page = open_page(f"#/jobs/{job.id}/checkpoints")
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.get_by_text("It timed out.")).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("^Duration. end to end: "))).to_be_visible()
    history = page.get_by_role("region", name="Checkpoints", exact=True)
    newest = history.get_by_role("row").nth(1).get_by_role("link")
    number = newest.inner_text()
    newest.click()
    detail = page.get_by_role("region", name=f"Vertices in checkpoint {number}")
    expect(detail).to_contain_text("420 MB")
    detail.get_by_role("link", name="Enrich orders").click()
    parts = page.get_by_role("region", name="Subtasks of Enrich orders with customers")
    expect(parts.get_by_role("row")).to_have_count(5)
    expect(parts).to_contain_text("11 ms")
    assert page.url.endswith(f"/checkpoints/{number}/{job.vertices[2].id}")


def test_a_failure_has_the_users_traceback_and_those_beside_it(open_page: Opens, world: World) -> None:
    page = open_page(f"#/jobs/{job_of(world).id}/exceptions")
    trace = page.get_by_role("region", name="Traceback of KeyError")
    expect(trace).to_contain_text("KeyError: 'XAU'")
    expect(trace.locator(".own")).to_have_text(re.compile(r"/srv/jobs/orders.py"))
    expect(page.get_by_text("type: user").first).to_be_visible()
    page.get_by_text("2 others failed").click()
    expect(page.get_by_role("region", name="Traceback of ConnectionResetError").first).to_be_visible()


def test_a_failed_job_says_why_on_every_view(open_page: Opens, world: World) -> None:
    job = job_of(world, "Fraud patterns")
    page = open_page(f"#/jobs/{job.id}/timeline")
    expect(page.locator(".note.bad")).to_contain_text("KeyError: 'XAU'")
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)


def test_a_job_that_keeps_failing_does_not_look_well(open_page: Opens, world: World) -> None:
    job = job_of(world)
    job.failures, job.restarts = [failure("Enrich orders with customers", 20)], 162
    page = open_page()
    row = page.get_by_role("region", name="Running jobs").get_by_role("row", name=job.name)
    expect(row.get_by_role("link", name="162 restarts")).to_have_attribute("title", re.compile("^Last failure: "))
    expect(row.locator(".status")).to_have_class(re.compile("warn"))
    row.get_by_role("link", name=job.name).click()
    head = page.locator(".job-head")
    expect(head.locator(".status")).to_have_class(re.compile("warn"))
    expect(head.get_by_role("link", name="162 restarts")).to_be_visible()
    banner = page.locator(".note.bad")
    expect(banner).to_contain_text("Enrich orders with customers (2/4) failed at")
    expect(banner).to_contain_text("KeyError: 'XAU'")
    checkpoint = answers.restored(job)
    assert checkpoint
    expect(banner).to_contain_text(f"The job began again from checkpoint {checkpoint['id']}.")
    expect(banner.get_by_role("link", name="Traceback")).to_be_visible()


def test_a_failure_long_ago_is_counted_and_no_alarm(open_page: Opens, world: World) -> None:
    job = job_of(world)
    page = open_page(f"#/jobs/{job.id}/graph")
    head = page.locator(".job-head")
    expect(head.get_by_role("link", name="1 restart")).to_be_visible()
    expect(head.locator(".status")).to_have_class(re.compile("good"))
    expect(page.locator(".note.bad")).to_have_count(0)
    expect(page.locator(".figure", has_text="Last failure")).to_contain_text("ago")


def test_a_watermark_that_an_input_holds_back_is_told_with_the_input(open_page: Opens, world: World) -> None:
    job = job_of(world)
    page = open_page(f"#/jobs/{job.id}/graph")
    expect(in_graph(page, "Enrich orders")).to_be_visible()
    note = page.locator(".note.warn")
    expect(note).to_have_count(0)
    job.held_back = "Enrich orders with customers"
    expect(note).to_have_text(
        "The watermark of Enrich orders with customers has stood still for 1 min 35 s: "
        "Source: customers -> parse, customers-3, holds it back."
    )
    note.get_by_role("link").click()
    inputs = page.get_by_role("region", name="Inputs of the operator").get_by_role("row")
    expect(inputs.filter(has_text="orders from Kafka")).to_contain_text("ahead")
    expect(inputs.filter(has_text="customers")).to_contain_text(re.compile(r"behind20\d\d-.*subtask 1"))


def test_a_job_that_began_anew_says_so(open_page: Opens, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(world)
    job.failures, job.restarts = [failure("Enrich orders with customers", 20)], 1
    monkeypatch.setattr(answers, "restored", lambda _: None)
    page = open_page(f"#/jobs/{job.id}/graph")
    expect(page.locator(".note.bad")).to_contain_text("The job began anew: it had no checkpoint to begin from.")


def test_state_metrics_timeline_and_configuration(open_page: Opens, world: World) -> None:
    job = job_of(world)
    page = open_page(f"#/jobs/{job.id}/state/{job.vertices[2].id}")
    expect(page.get_by_role("region", name="State by vertex").get_by_role("row").nth(1)).to_contain_text("420 MB")
    expect(page.get_by_role("region", name="State by subtask").get_by_role("row")).to_have_count(5)
    views = page.get_by_role("navigation", name="Views of the job")
    views.get_by_role("link", name="Metrics").click()
    expect(page.get_by_role("img", name=re.compile(r"Records out\..*Enrich orders"))).to_be_visible()
    views.get_by_role("link", name="Timeline").click()
    statuses = page.get_by_role("region", name="Statuses of the job").get_by_role("row")
    expect(statuses.nth(2)).to_have_text(re.compile("^created"))
    expect(statuses.filter(has_text="running")).to_have_count(2)
    expect(statuses.last).to_have_text(re.compile(r"^initializing.*40 ms"))
    page.get_by_role("link", name="Window: revenue").click()
    expect(page.get_by_role("region", name="Subtasks over time").get_by_role("row")).to_have_count(5)
    views.get_by_role("link", name="Configuration").click()
    expect(page.get_by_role("region", name="Parameters of the program").last).to_contain_text("region")
    expect(page.get_by_text("exponential-delay")).to_be_visible()


def test_the_status_of_now_has_lasted_from_its_beginning(
    open_page: Opens, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the job's own answer is older than that of its statuses."""
    job = job_of(world)
    job.failures = [failure("Enrich orders with customers", 5)]
    details = answers.details
    monkeypatch.setattr(answers, "details", lambda job: {**details(job), "now": job.failures[0]["timestamp"]})
    page = open_page(f"#/jobs/{job.id}/timeline")
    now = page.get_by_role("region", name="Statuses of the job").get_by_role("row").nth(1)
    expect(now).to_have_text(re.compile(r"^running(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d\d+(\.\d)? s$"))


def test_a_batch_job_has_no_checkpoints_to_show(open_page: Opens, world: World) -> None:
    page = open_page(f"#/jobs/{job_of(world, 'Daily totals').id}")
    views = page.get_by_role("navigation", name="Views of the job")
    expect(views.get_by_role("link")).to_have_text(["Graph", "Exceptions", "Metrics", "Timeline", "Configuration"])


def test_workers_with_memory_logs_and_threads(open_page: Opens) -> None:
    page = open_page("#/workers")
    expect(page.get_by_role("row", name="worker-2")).to_contain_text("1.95 GB")
    page.get_by_role("link", name="worker-2").click()
    views = page.get_by_role("navigation", name="Views of the worker")
    views.get_by_role("link", name="Logs").click()
    page.get_by_role("link", name="penstock.log").click()
    log = page.get_by_role("region", name="penstock.log").last
    expect(log).to_contain_text("step 399 of the loop")
    page.get_by_role("searchbox").fill("step 42 ")
    expect(log).not_to_contain_text("step 399")
    views.get_by_role("link", name="Threads").click()
    expect(page.get_by_role("region", name="Stack of main")).to_contain_text("worker.py:120")


def test_the_job_manager_has_its_options(open_page: Opens) -> None:
    page = open_page("#/cluster")
    expect(page.get_by_text("CPython 3.11")).to_be_visible()
    page.get_by_role("searchbox").first.fill("secret")
    expect(page.get_by_role("region", name="Options").last).to_have_text(re.compile(r"^s3\.secret-key\s*\*{6}$"))


def test_what_is_not_there_is_said(open_page: Opens, world: World) -> None:
    page = open_page(f"#/jobs/{'f' * 32}")
    expect(page.get_by_role("alert")).to_contain_text("The server knows no job.")


def test_a_token_is_asked_for_and_sent(open_page: Opens, world: World) -> None:
    world.token = "letmein"
    page = open_page()
    prompt = page.get_by_role("dialog", name="This server asks for a token")
    prompt.get_by_label("Token").fill("wrong")
    prompt.get_by_role("button", name="Go on").click()
    expect(prompt).to_contain_text("did not accept")
    prompt.get_by_label("Token").fill("letmein")
    prompt.get_by_role("button", name="Go on").click()
    expect(page.get_by_role("link", name="Orders by region")).to_be_visible()
    expect(prompt).to_have_count(0)


def test_a_job_is_shown_without_the_token_that_its_failures_need(open_page: Opens, world: World) -> None:
    world.token, world.shows_the_rest = "letmein", True
    job = job_of(world)
    job.failures, job.restarts = [failure("Enrich orders with customers", 20)], 1
    asked: list[str] = []
    page = open_page(
        f"#/jobs/{job.id}/graph", lambda page: page.on("request", lambda request: asked.append(request.url))
    )
    expect(in_graph(page, "Enrich orders with customers")).to_contain_text(re.compile(r"in [\d.]+ k/s"))
    expect(page.locator(".note.bad")).to_have_text(re.compile(r"The job failed at \d\d:\d\d:\d\d. Why$"))
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert sum("watermark-hold" in url for url in asked) == 1, "once is enough to know that it needs a token"
    page.locator(".note.bad").get_by_role("link", name="Why").click()
    prompt = page.get_by_role("dialog", name="This server asks for a token")
    prompt.get_by_label("Token").fill("letmein")
    prompt.get_by_role("button", name="Go on").click()
    expect(page.locator(".note.bad")).to_contain_text("KeyError: 'XAU'")
    with page.expect_response("**/watermark-hold"):
        pass


def test_a_server_that_falls_silent_is_named_and_what_is_known_stays(open_page: Opens, url: str) -> None:
    page = open_page()
    expect(page.get_by_role("link", name="Orders by region")).to_be_visible()
    page.context.set_offline(True)
    expect(page.get_by_text("The server has not answered since")).to_be_visible()
    expect(page.get_by_role("link", name="Orders by region")).to_be_visible()
    page.context.set_offline(False)
    expect(page.get_by_text("The server has not answered since")).to_have_count(0)
