"""Patterns that an earlier version stored in the middle of matches must be gone on from by every later one (H4)."""

from __future__ import annotations

from contextlib import closing

import pytest
from tests.golden.patterns import DIRECTORY, SCENES, Scene, draw_events
from tests.state.rocks import CanonicalRocks

from penstock.testing import operator_harness


@pytest.fixture(params=["hashmap", "rocksdb"], autouse=True)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goes on from the same snapshots on each of the backends."""
    if request.param == "rocksdb":
        monkeypatch.setattr(operator_harness, "HeapKeyedStateBackend", CanonicalRocks)


@pytest.mark.parametrize("name", SCENES)
def test_a_pattern_goes_on_from_it(name: str) -> None:
    """H4: the matches after it are those of a run that was not interrupted."""
    before, after = draw_events(name)
    with closing(Scene(name)) as scene:
        scene.feed(before)
        wanted = [*scene.feed(after), *scene.finish()]
    with closing(Scene(name, (DIRECTORY / f"{name}.bin").read_bytes())) as scene:
        assert sorted([*scene.feed(after), *scene.finish()]) == sorted(wanted)
    assert wanted, "the scene shows nothing"


def test_there_is_a_snapshot_for_each_scene() -> None:
    assert {file.stem for file in DIRECTORY.iterdir()} == set(SCENES)
