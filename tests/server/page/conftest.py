"""A browser for each file, and for each test a mock server and the page of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.server.page.browser import PATIENCE_MS, NoBrowserError, open_browser, patient
from tests.server.page.mock.server import MockServer, World

from penstock.base.errors import MissingPathError
from penstock.server.page import files


@pytest.fixture(scope="module")
def built() -> Path:
    try:
        return files()
    except MissingPathError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def browser(built: Path) -> Iterator[Browser]:
    # One for each file only: a loop of asyncio runs in this thread as long as the browser is open.
    try:
        with open_browser() as browser:
            expect.set_options(timeout=PATIENCE_MS)
            yield browser
    except NoBrowserError as error:
        pytest.skip(str(error))


@pytest.fixture
def world() -> World:
    return World(busy_s=0.1)


@pytest.fixture
def url(world: World, built: Path) -> Iterator[str]:
    server = MockServer(world, built)
    yield server.url
    server.close()


@pytest.fixture
def open_page(browser: Browser, url: str) -> Iterator[Callable[..., Page]]:
    """Opens the page at an address, in a window of its own; an error in it fails the test."""
    contexts = []
    errors: list[str] = []

    def open_at(address: str = "#/jobs", before: Callable[[Page], None] = lambda page: None, **settings: Any) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1400, "height": 900}, **settings})
        contexts.append(context)
        page = patient(context.new_page())
        page.on("pageerror", lambda error: errors.append(str(error)))
        before(page)
        page.goto(url + address)
        return page

    yield open_at
    for context in contexts:
        context.close()
    assert errors == []
