"""How long the page's frames take while a thousand subtasks scroll and update.

    python -m tests.server.page.frames [--wide 1000] [--seconds 15]

Chromium traces the page of a mock's job: its graph, and the table of a vertex's subtasks, which is scrolled from end to
end while figures come every two seconds. Told are the times between frames, the processor time of the page's main
thread from one frame to the next, and what that goes into. Where others want the processor, the times between frames
are theirs, too; the processor time is the page's own.
"""

from __future__ import annotations

import bisect
import json
import math
from typing import Any

import click
from playwright.sync_api import CDPSession, Page
from tests.server.page.browser import open_browser, patient
from tests.server.page.mock.server import MockServer, World

from penstock.server.page import files

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


#: Events of the trace, and what they are to a reader.
PARTS = {
    "EventDispatch": "script",
    "FunctionCall": "script",
    "TimerFire": "script",
    "UpdateLayoutTree": "style",
    "Layout": "layout",
    "PrePaint": "paint",
    "Paint": "paint",
    "Layerize": "paint",
    "Commit": "paint",
}


def traced(page: Page, seconds: float) -> tuple[list[float], list[dict[str, Any]]]:
    """The times (ms) between frames, and what the page's main thread did meanwhile."""
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
    return frames, of_the_page(events)


def of_the_page(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The main thread of the renderer that ran most: a browser has some that only wait. In the order of time."""
    mains: dict[tuple[int, int], list[dict[str, Any]]] = {
        (e["pid"], e["tid"]): [] for e in events if e["name"] == "thread_name" and e["args"]["name"] == "CrRendererMain"
    }
    for event in events:
        if event.get("ph") == "X" and (event["pid"], event["tid"]) in mains:
            mains[event["pid"], event["tid"]].append(event)
    found = max(mains.values(), key=lambda some: sum(event.get("tdur", 0) for event in some), default=[])
    return sorted(found, key=lambda event: (event["ts"], -event.get("dur", 0)))


def outermost(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events that are not within others."""
    found: list[dict[str, Any]] = []
    end = -1
    for event in events:
        if event["ts"] >= end:
            found.append(event)
            end = event["ts"] + event.get("dur", 0)
    return found


def by_frame(events: list[dict[str, Any]]) -> list[float]:
    """The processor time (ms) of the main thread from the beginning of each frame to that of the next."""
    begins = [event["ts"] for event in events if event["name"] == "FireAnimationFrame"]
    tasks = outermost([event for event in events if event["name"].endswith("RunTask")])
    if len(begins) < 2 or not tasks:
        raise SystemExit("Chromium's trace has no frames, or no tasks, of the page: has it renamed them?")
    times = [0.0] * (len(begins) - 1)
    for task in tasks:
        # A frame's script runs within the task that renders it.
        place = bisect.bisect_right(begins, task["ts"] + task.get("dur", 0)) - 1
        if 0 <= place < len(times):
            times[place] += task.get("tdur", 0) / 1000
    return times


def by_part(events: list[dict[str, Any]]) -> dict[str, float]:
    """The processor time (ms) of what is in `PARTS`, by what it is; what is within another counts there alone."""
    own: dict[str, float] = dict.fromkeys(PARTS.values(), 0.0)
    within: list[tuple[float, str]] = []
    for event in events:
        if (part := PARTS.get(event["name"])) is None:
            continue
        while within and within[-1][0] <= event["ts"]:
            within.pop()
        time_ms = event.get("tdur", 0) / 1000
        own[part] += time_ms
        if within:
            own[within[-1][1]] -= time_ms
        within.append((event["ts"] + event.get("dur", 0), part))
    return own


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
            frames, events = traced(page, seconds)
    finally:
        server.close()
    for name, times in {"between frames": frames, "processor time of a frame": by_frame(events)}.items():
        shown = {"p50": percentile(times, 0.5), "p99": percentile(times, 0.99), "longest": max(times)}
        print(json.dumps({"ms": name, "count": len(times)} | {key: round(value, 1) for key, value in shown.items()}))
        print(f"  below {GOAL_MS} ms: {'yes' if max(times) < GOAL_MS else 'no'}")
    parts = {part: round(time_ms / len(frames), 2) for part, time_ms in by_part(events).items()}
    print(json.dumps({"ms": "of a frame's processor time, on average"} | parts))


if __name__ == "__main__":
    main()
