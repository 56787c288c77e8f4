"""The pictures of docs/ten-minutes.md: the page of the very job that the page is about."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

from playwright.sync_api import Browser, Page, ViewportSize, expect
from tests.server.page.browser import PATIENCE_MS, patient
from tests.server.page.images import BYTES_MAX
from tests.tutorial.page import FOLDER, Picture

#: Shows another folder in place of the one in which this runs.
ELSEWHERE = """([here, there]) => {
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
    while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(here, there)
}"""


@dataclass(frozen=True)
class View:
    """What a picture shows: a view of the job, once there is what the reader is to see, and how high (px) it is."""

    name: str
    is_there: Callable[[Page], None]
    height: int = 480


def _rates(page: Page) -> None:
    graph = page.get_by_role("region", name="Job graph")
    expect(graph.get_by_role("link")).to_have_count(3)
    expect(graph.locator(".edge-rate").first).to_have_text(re.compile(r"^[1-9].*/s$"))


def _lost_worker(page: Page) -> None:
    expect(page.get_by_role("main")).to_contain_text(re.compile("worker-.* was lost|its Python process died"))
    expect(page.locator(".job-head")).to_contain_text("running")


def _restored(page: Page) -> None:
    expect(page.get_by_role("main")).to_contain_text("savepoint-")
    expect(page.get_by_role("region", name="Checkpoints", exact=True)).to_contain_text("completed")


VIEWS = {
    "tutorial-graph": View("graph", _rates, 640),
    "tutorial-exceptions": View("exceptions", _lost_worker, 480),
    "tutorial-checkpoints": View("checkpoints", _restored, 640),
}


class Photographer:
    """Takes the pictures.

    Args:
        browser: shows the page.
        directory: where they go.
        gathers_ms: for how long (ms) figures gather before a picture.
    """

    def __init__(self, browser: Browser, directory: Path, gathers_ms: int = 0) -> None:
        self._browser = browser
        self._directory = directory
        self._gathers_ms = gathers_ms
        #: what was taken, in order
        self.taken: list[str] = []

    def __call__(self, picture: Picture, server: str, folder: Path) -> None:
        with urlopen(f"{server}/jobs") as answer:
            (job,) = json.load(answer)["jobs"]
        view = VIEWS[picture.name]
        size = ViewportSize(width=1100, height=view.height)
        context = self._browser.new_context(viewport=size, reduced_motion="reduce")
        expect.set_options(timeout=PATIENCE_MS)
        try:
            page = patient(context.new_page())
            page.goto(f"{server}/#/jobs/{job['id']}/{view.name}")
            view.is_there(page)
            page.wait_for_timeout(self._gathers_ms)
            page.evaluate(ELSEWHERE, [str(folder.resolve()), FOLDER])
            path = self._directory / f"{picture.name}.png"
            page.screenshot(path=str(path))
        finally:
            context.close()
        assert path.stat().st_size < BYTES_MAX, f"{path} has more than {BYTES_MAX} bytes"
        self.taken.append(picture.name)
