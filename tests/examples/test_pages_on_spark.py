"""The program of every page that has to do with Spark runs there as a script; those of `test_wheel` run there."""

from pathlib import Path

import pytest
from tests.examples.pages import PAGES, run_page, runs_on
from tests.examples.test_wheel import FIRST_PAGES

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("page", [page for page in runs_on("spark") if page not in FIRST_PAGES])
def test_the_program_of_a_page_runs_on_spark(page: str, tmp_path: Path) -> None:
    """A2, E8: what the page says holds there, too."""
    PAGES[page].check(run_page(page, "spark", tmp_path))
