"""A browser with the page in it, for tests, figures and pictures."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).parents[3]
AXE = ROOT / "web/node_modules/axe-core/axe.min.js"
#: For how long (ms) something is awaited that a slow machine may delay.
PATIENCE_MS = 30_000


class NoBrowserError(Exception):
    """There is no browser on this machine."""


@contextmanager
def open_browser() -> Iterator[Browser]:
    """The browser that `scripts/browser` finds."""
    found = subprocess.run([ROOT / "scripts/browser"], capture_output=True, text=True, check=False)
    if found.returncode:
        raise NoBrowserError(found.stderr.strip())
    with sync_playwright() as playwright:
        # Its sandbox needs rights that containers do not give; it sees nothing but the page.
        browser = playwright.chromium.launch(executable_path=found.stdout.strip(), args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def patient(page: Page) -> Page:
    """A page whose waits allow for a slow machine."""
    page.set_default_timeout(PATIENCE_MS)
    return page
