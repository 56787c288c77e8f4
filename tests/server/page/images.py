"""Pictures of the page for the documents.

    python -m tests.server.page.images docs/images

A job of the tests runs in this process, with a server; Chromium opens the page and takes the pictures.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import click
from playwright.sync_api import Browser, Page
from tests.server.page.browser import ROOT, open_browser, patient
from tests.server.page.test_real_job import start

from penstock.drivers.running_job import RunningJob
from penstock.server.rest.server import servers

#: So that pages of documents stay light.
BYTES_MAX = 150_000
PHONE = {"viewport": {"width": 390, "height": 700}, "device_scale_factor": 1.5, "is_mobile": True, "has_touch": True}
#: For how long (s) figures gather before a picture of them.
GATHERS_S = 8

#: Where a checkout is says nothing to a reader.
WITHOUT_THE_CHECKOUT = """root => {
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
    while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(root, '')
}"""


def take(browser: Browser, job: RunningJob, view: str, path: Path, **settings: Any) -> None:
    context = browser.new_context(**{"viewport": {"width": 1100, "height": 580}, "reduced_motion": "reduce"} | settings)
    try:
        page = patient(context.new_page())
        page.goto(f"{servers[-1].url}/#/jobs/{job.get_job_id()}/{view}")
        await_figures(page)
        page.evaluate(WITHOUT_THE_CHECKOUT, f"{ROOT}/")
        page.screenshot(path=str(path))
    finally:
        context.close()
    if path.stat().st_size > BYTES_MAX:
        raise SystemExit(f"{path} has more than {BYTES_MAX} bytes")


def await_figures(page: Page) -> None:
    page.get_by_role("navigation", name="Views of the job").wait_for()
    page.wait_for_timeout(GATHERS_S * 1000)


def fail_once(job: RunningJob, folder: Path) -> None:
    (folder / "poison").touch()
    while not job.get_progress().result().restarts:
        time.sleep(0.1)


@click.command(help=__doc__.splitlines()[0] if __doc__ else None)
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="penstock-images-") as folder, open_browser() as browser:
        job = start("local", Path(folder), 2, {"execution.checkpointing.interval": "1 s"})
        try:
            take(browser, job, "graph", directory / "page-graph.png")
            take(browser, job, "graph", directory / "page-graph-dark.png", color_scheme="dark")
            take(browser, job, "graph", directory / "page-phone.png", **PHONE)
            take(
                browser, job, "checkpoints", directory / "page-checkpoints.png", viewport={"width": 1100, "height": 800}
            )
            fail_once(job, Path(folder))
            take(browser, job, "exceptions", directory / "page-exceptions.png")
        finally:
            job.end()


if __name__ == "__main__":
    main()
