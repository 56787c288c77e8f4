"""The program of docs/windows.md runs."""

import re
from pathlib import Path

from tests.examples.test_readme import LOCAL, run

PAGE = Path(__file__).parents[2] / "docs" / "windows.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)

EXPECTED = [
    # tumbling
    "('ann', 0, ['/', '/shop'])",
    "('ann', 10, ['/buy'])",
    "('bob', 0, ['/'])",
    "('bob', 30, ['/'])",
    # so far
    "(10, 3)",
    "(20, 4)",
    "(30, 4)",
    "(40, 5)",
    # session
    "('ann', 1, ['/', '/shop', '/buy'])",
    "('bob', 2, ['/'])",
    "('bob', 31, ['/'])",
    # pair
    "('ann', 0)",
    "('bob', 0)",
    # spent
    "('ann', 2)",
    # last two
    "('ann', '/')",
    "('ann', '/ then /shop')",
    "('ann', '/shop then /buy')",
    "('bob', '/')",
    "('bob', '/ then /')",
    # in time, and late
    "('ann', 0, ['/'])",
    "('ann', 50, ['/'])",
    "('ann', '/late', 2000)",
    # nr
    "('ann', 0, 1, 1)",
    "('ann', 0, 2, 2)",
    "('ann', 0, 3, 3)",
    "('bob', 0, 1, 1)",
    "('bob', 30, 2, 1)",
]


def test_the_blocks_are_one_program(tmp_path: Path) -> None:
    """C1: what the page says of windows holds."""
    assert run(LOCAL + "".join(BLOCKS), tmp_path) == sorted(EXPECTED)
