"""How long the page's frames take while a thousand subtasks scroll and update.

    python -m tests.operations.page.frames [--wide 1000] [--seconds 15]

Chromium traces the page of a mock's job: its graph, and the table of a vertex's subtasks, which is scrolled from end to
end while figures come every two seconds. Told are the times between frames, and those of the tasks that the page's main
thread does without a break, on the clock and of the processor. Where others want the processor, only the latter are the
page's own.
"""

from __future__ import annotations

import json
import math
from typing import Any

import click
from playwright.sync_api import CDPSession, Page
from tests.operations.page.browser import open_browser, patient
from tests.operations.page.mock.server import MockServer, World

from penstock.operations.page import files

#: The goal (ms) for the longest frame.
GOAL_MS = 100

SCROLL = """async seconds => {
    const box = document.querySelector('.rows')
    const times = []
    const began = performance.now()
    let last = began
    for (;;) {
        const now = await new Promise(requestAnimationFrame)
        if (now > last) times.push(now - last)
        last = now
        if (now - began > seconds * 1000) return [times, box.scrollHeight]
        const way = ((now - began) / 3000) % 2
        box.scrollTop = (way < 1 ? way : 2 - way) * (box.scrollHeight - box.clientHeight)
    }
}"""


def percentile(values: list[float], of: float) -> float:
    return sorted(values)[max(0, math.ceil(of * len(values)) - 1)]


def traced(page: Page, seconds: float) -> tuple[list[float], list[float], list[float]]:
    """The times (ms) between frames, those of the main thread's tasks, and their processor times."""
    session: CDPSession = page.context.new_cdp_session(page)
    events: list[dict[str, Any]] = []
    ended: list[bool] = []
    session.on("Tracing.dataCollected", lambda data: events.extend(data["value"]))
    session.on("Tracing.tracingComplete", lambda _: ended.append(True))
    categories = ["toplevel", "devtools.timeline", "disabled-by-default-devtools.timeline", "__metadata"]
    session.send("Tracing.start", {"traceConfig": {"includedCategories": categories}, "transferMode": "ReportEvents"})
    frames, height = page.evaluate(SCROLL, seconds)
    if height < 10_000:
        raise SystemExit("the table of subtasks is not there, or not long: nothing was measured")
    session.send("Tracing.end")
    while not ended:
        page.wait_for_timeout(100)
    tasks = tasks_of_the_page(events)
    return frames, [task.get("dur", 0) / 1000 for task in tasks], [task.get("tdur", 0) / 1000 for task in tasks]


def tasks_of_the_page(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of the renderer that ran the most scripts: a browser has some that only wait."""
    mains = {
        (e["pid"], e["tid"]) for e in events if e["name"] == "thread_name" and e["args"]["name"] == "CrRendererMain"
    }
    tasks: dict[tuple[int, int], list[dict[str, Any]]] = {main: [] for main in mains}
    for event in events:
        if event["name"] in ("RunTask", "ThreadControllerImpl::RunTask") and (event["pid"], event["tid"]) in tasks:
            tasks[event["pid"], event["tid"]].append(event)
    found = max(tasks.values(), key=lambda some: sum(task.get("tdur", 0) for task in some), default=[])
    if not found:
        raise SystemExit("Chromium's trace has no tasks of the page: has it renamed them?")
    return found


@click.command(help=__doc__.splitlines()[0] if __doc__ else None)
@click.option("--wide", default=1000, show_default=True, help="Subtasks of each vertex.")
@click.option("--seconds", default=15.0, show_default=True, help="How long to trace.")
def main(wide: int, seconds: float) -> None:
    world = World(wide)
    job = world.jobs[-1]
    server = MockServer(world, files())
    try:
        with open_browser() as browser:
            page = patient(browser.new_context(viewport={"width": 1400, "height": 900}).new_page())
            page.goto(f"{server.url}#/jobs/{job.id}/graph/{job.vertices[-1].id}/subtasks")
            page.get_by_role("region", name="Subtasks").get_by_role("row").nth(5).wait_for()
            frames, tasks, own = traced(page, seconds)
    finally:
        server.close()
    measured = {"between frames": frames, "tasks of the main thread": tasks, "their processor time": own}
    for name, times in measured.items():
        shown = {"longest": max(times), **{f"p{of}": percentile(times, of / 100) for of in (99.9, 99, 50)}}
        print(json.dumps({"ms": name, "count": len(times)} | {key: round(value, 1) for key, value in shown.items()}))
        print(f"  below {GOAL_MS} ms: {'yes' if max(times) < GOAL_MS else 'no'}")


if __name__ == "__main__":
    main()
