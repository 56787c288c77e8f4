"""`/jobs/:jobid/watermark-hold`: which inputs hold watermarks back, at once, and where they come from (C2)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
from tests.server.rest.rig import BEGAN_MS, COUNT, JOB, SOURCE, Handle, a_view, serving

from penstock.runtime.job.view import JobView
from penstock.runtime.protocol import InputWatermark, WatermarkHold
from penstock.runtime.records import MIN_TIMESTAMP

NOW_MS = BEGAN_MS + 60_300


def with_holds(holds: dict[tuple[int, int], WatermarkHold], **changes: Any) -> JobView:
    """The view of the rig, in which these subtasks have said that they are held back."""
    view = a_view(**changes)
    vertices = []
    for vertex in view.vertices:
        subtasks = []
        for subtask in vertex.subtasks:
            assert subtask.metrics is not None
            assert subtask.metrics.figures is not None

            hold = holds.get((vertex.index, subtask.subtask))
            figures = msgspec.structs.replace(subtask.metrics.figures, hold=hold)
            subtasks.append(replace(subtask, metrics=msgspec.structs.replace(subtask.metrics, figures=figures)))
        vertices.append(replace(vertex, subtasks=tuple(subtasks)))
    return replace(view, vertices=tuple(vertices))


def hold(since_ms: int, *parts: str, lowest: int = 1_000, edge: int | None = 0) -> WatermarkHold:
    slow = InputWatermark(edge, lowest, 5_000, is_idle=False, holds=True, parts=parts, count=len(parts))
    return WatermarkHold(lowest, since_ms, since_ms + 2_000, (slow,))


def asked(view: JobView) -> Any:
    with serving(Handle(view)) as client:
        answer = client.get(f"/jobs/{JOB}/watermark-hold")
    assert answer.code == 200
    return answer.json


def test_nothing_is_held_back() -> None:
    assert asked(a_view()) == {"status": "ok", "reason": None, "now": NOW_MS, "holds": []}


def test_the_input_its_subtasks_and_the_time_are_told() -> None:
    found = asked(with_holds({(1, 1): hold(NOW_MS - 30_000, "0")}))
    assert found["status"] == "ok"
    assert found["holds"] == [
        {
            "id": COUNT,
            "name": "count",
            "operator": "count",
            "subtasks": [1],
            "watermark": 1_000,
            "since": NOW_MS - 30_000,
            "duration": 30_000,
            "others-moved": NOW_MS - 28_000,
            "inputs": [
                {
                    "id": SOURCE,
                    "name": "numbers",
                    "holds": True,
                    "idle": False,
                    "ended": False,
                    "watermark": 1_000,
                    "highest-watermark": 5_000,
                    "subtasks": [0],
                    "splits": [],
                    "count": 1,
                }
            ],
            "origin": {"id": SOURCE, "name": "numbers", "subtasks": [0], "splits": [], "has-watermarks": True},
        }
    ]


def test_subtasks_of_one_vertex_are_one_hold_the_longest_first() -> None:
    holds = {
        (1, 0): hold(NOW_MS - 5_000, "1"),
        (1, 1): hold(NOW_MS - 9_000, "1", lowest=MIN_TIMESTAMP),
        (0, 0): hold(NOW_MS - 20_000, "orders-3", edge=None),
    }
    first, second = asked(with_holds(holds))["holds"]
    assert (first["name"], first["duration"]) == ("numbers", 20_000)
    assert (first["inputs"][0]["splits"], first["inputs"][0]["subtasks"]) == (["orders-3"], [])
    assert first["inputs"][0]["name"] == "numbers"
    assert first["origin"] == {
        "id": SOURCE,
        "name": "numbers",
        "subtasks": [0],
        "splits": ["orders-3"],
        "has-watermarks": True,
    }
    assert (second["subtasks"], second["duration"], second["watermark"]) == ([0, 1], 9_000, None)


def test_jobs_in_steps_have_no_holds() -> None:
    for mode in ("BATCH", "MICRO_BATCH"):
        found = asked(a_view(mode=mode))
        assert (found["status"], found["holds"]) == ("not-applicable", [])
        assert mode in found["reason"]
