"""Random histories of pipelines; see `random_pipelines`."""

from __future__ import annotations

import random

import pytest
from tests.cdc import random_pipelines


def test_random_histories_end_as_the_model_says() -> None:
    seed = random.randrange(1 << 32)
    print(f"python -m tests.cdc.random_pipelines --histories 25 --seed {seed}")
    for number in range(25):
        random_pipelines.run_history(seed + number)


@pytest.mark.slow
@pytest.mark.parametrize("bug", list(random_pipelines.planted_bugs()), ids=lambda bug: bug[0])
def test_a_planted_bug_is_found(bug: tuple[str, type, str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bug[1], bug[2], bug[3])

    def run_histories() -> None:
        for seed in range(200):
            random_pipelines.run_history(seed)

    with pytest.raises(Exception):  # noqa: B017, PT011 - a wrong target, or a step that cannot be made
        run_histories()
