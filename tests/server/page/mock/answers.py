"""What the server says of a job, in the shapes of Flink's REST API."""

from __future__ import annotations

import html
import math
from typing import Any

from tests.server.page.mock.jobs import ENDED, JOB_STATES, MEBI, TASK_STATES, Job, Vertex, hex_id, now_ms, worker_id

SHOWN_CHECKPOINTS = 10
SUMMED_UP = (
    "checkpointed_size",
    "state_size",
    "end_to_end_duration",
    "alignment_buffered",
    "processed_data",
    "persisted_data",
)
CHECKPOINT_EVERY_S = 10


def counts(of: str, n: int) -> dict[str, int]:
    return {state: n if state == of else 0 for state in TASK_STATES}


def io(job: Job, vertex: Vertex, subtask: int) -> dict[str, Any]:
    seconds = job.seconds
    read = int(vertex.total(subtask, seconds, vertex.records_in))
    written = int(vertex.total(subtask, seconds, vertex.records_out))
    busy = int(vertex.total(subtask, seconds, vertex.busy * vertex.parallelism) * 1000)
    held = int(vertex.total(subtask, seconds, vertex.held * vertex.parallelism) * 1000)
    return {
        "read-bytes": read * 61,
        "read-bytes-complete": True,
        "write-bytes": written * 61,
        "write-bytes-complete": True,
        "read-records": read,
        "read-records-complete": True,
        "write-records": written,
        "write-records-complete": True,
        "accumulated-backpressured-time": held,
        "accumulated-idle-time": max(0, int(seconds * 1000) - busy - held),
        "accumulated-busy-time": busy,
    }


def io_of_all(job: Job, vertex: Vertex) -> dict[str, Any]:
    parts = [io(job, vertex, subtask) for subtask in range(vertex.parallelism)]
    return {key: True if key.endswith("complete") else sum(part[key] for part in parts) for key in parts[0]}


def summary(job: Job) -> dict[str, Any]:
    total = sum(vertex.parallelism for vertex in job.vertices)
    tasks = {state.lower(): 0 for state in TASK_STATES}
    return {
        "jid": job.id,
        "name": job.name,
        "jobType": job.kind,
        "schedulerType": "Adaptive",
        "start-time": job.start_ms,
        "end-time": job.end_ms,
        "duration": int(job.seconds * 1000),
        "state": job.state,
        "last-modification": max(job.start_ms, job.end_ms),
        "tasks": {**tasks, job.task_state.lower(): total, "total": total},
        "pending-operators": 0,
        **failures(job),
    }


def description(vertex: Vertex) -> str:
    first, *others = map(html.escape, vertex.steps or (vertex.name,))
    return f"{first}<br/>" + "".join(f"+- {step}<br/>" for step in others)


def status_history(job: Job) -> dict[str, Any]:
    moves = [("INITIALIZING", job.start_ms), ("CREATED", job.start_ms + 40), ("RUNNING", job.start_ms + 900)]
    for at in sorted(failure["timestamp"] for failure in job.failures):
        moves += [("FAILING", at), ("RESTARTING", at + 1), ("CREATED", at + 1300), ("RUNNING", at + 1400)]
    if job.state in ENDED:
        moves += [(job.state, job.end_ms)]
    ends = [at for _, at in moves[1:]] + [job.end_ms]
    periods = [
        {"status": status, "start-time": at, "end-time": end} for (status, at), end in zip(moves, ends, strict=True)
    ]
    return {"now": now_ms(), "periods": periods, "truncated": False}


def holds(job: Job) -> list[dict[str, Any]]:
    """The vertex that `held_back` names, by its second input."""
    found = []
    for vertex in (vertex for vertex in job.vertices if vertex.name == job.held_back):
        inputs: list[dict[str, Any]] = [
            {
                "id": hex_id(name),
                "name": name,
                "holds": n == 1,
                "idle": False,
                "ended": False,
                "watermark": now_ms() - (95_000 if n == 1 else 1_000),
                "highest-watermark": now_ms() - 1_000,
                "subtasks": [1] if n == 1 else [],
                "splits": [],
                "count": int(n == 1),
            }
            for n, name in enumerate(vertex.inputs)
        ]
        origin = {"id": inputs[1]["id"], "name": inputs[1]["name"], "subtasks": [1], "splits": ["customers-3"]}
        times = {"watermark": inputs[1]["watermark"], "since": now_ms() - 95_000, "duration": 95_000}
        found.append(
            {
                "id": vertex.id,
                "name": vertex.name,
                "operator": "Enrich",
                "subtasks": [0, 1],
                **times,
                "others-moved": now_ms(),
                "inputs": inputs,
                "origin": origin,
            }
        )
    return found


def failures(job: Job) -> dict[str, int]:
    return {"restarts": job.restarts, "last-failure": job.failures[0]["timestamp"] if job.failures else -1}


def restored(job: Job) -> dict[str, Any] | None:
    """From where the job began after its last failure."""
    if not job.restarts or job.has_ended:
        return None
    at = job.failures[0]["timestamp"]
    n = (at - job.start_ms) // (CHECKPOINT_EVERY_S * 1000)
    path = f"file:/var/checkpoints/{job.id}/chk-{n}"
    return {"id": n, "restore_timestamp": at + 1400, "is_savepoint": False, "external_path": path}


def details(job: Job) -> dict[str, Any]:
    names = {vertex.name: vertex.id for vertex in job.vertices}
    since = dict.fromkeys(JOB_STATES, 0)
    since |= {"INITIALIZING": job.start_ms, "CREATED": job.start_ms + 40, "RUNNING": job.start_ms + 900}
    if job.failures:
        since["RESTARTING"] = job.failures[0]["timestamp"]
        since["RUNNING"] = job.failures[0]["timestamp"] + 1400
    if job.state in ENDED:
        since[job.state] = job.end_ms
    return {
        "jid": job.id,
        "application-id": job.id,
        "name": job.name,
        "isStoppable": False,
        "state": job.state,
        "job-type": job.kind,
        "schedulerType": "Adaptive",
        "start-time": job.start_ms,
        "end-time": job.end_ms,
        "duration": int(job.seconds * 1000),
        "maxParallelism": 128,
        "now": now_ms(),
        "timestamps": since,
        "vertices": [
            {
                "id": vertex.id,
                "slotSharingGroupId": "0" * 32,
                "name": vertex.name,
                "maxParallelism": max(128, vertex.parallelism),
                "parallelism": vertex.parallelism,
                "status": job.task_state,
                "start-time": job.start_ms + 900,
                "end-time": job.end_ms,
                "duration": int(job.seconds * 1000) - 900,
                "tasks": counts(job.task_state, vertex.parallelism),
                "metrics": io_of_all(job, vertex),
            }
            for vertex in job.vertices
        ],
        "status-counts": counts(job.task_state, len(job.vertices)),
        "plan": {
            "jid": job.id,
            "name": job.name,
            "type": job.kind,
            "nodes": [
                {
                    "id": vertex.id,
                    "operator": "",
                    "parallelism": vertex.parallelism,
                    "operator_strategy": "",
                    "description": description(vertex),
                    "optimizer_properties": {},
                    "inputs": [
                        {"id": names[name], "num": n, "exchange": "pipelined_bounded", "ship_strategy": vertex.ship}
                        for n, name in enumerate(vertex.inputs)
                    ],
                }
                for vertex in job.vertices
            ],
        },
        "pending-operators": 0,
        **failures(job),
    }


def subtask(job: Job, vertex: Vertex, n: int) -> dict[str, Any]:
    return {
        "subtask": n,
        "status": job.task_state,
        "attempt": 1 if job.failures else 0,
        "endpoint": f"10.0.0.{n % 4 + 6}:40112",
        "start-time": job.start_ms + 900,
        "end-time": job.end_ms,
        "duration": int(job.seconds * 1000) - 900,
        "metrics": io(job, vertex, n),
        "taskmanager-id": worker_id(n),
        "status-duration": {"CREATED": 3, "SCHEDULED": 40, "DEPLOYING": 200, "INITIALIZING": 657, "RUNNING": 1},
        "start_time": job.start_ms + 900,
    }


def vertex_details(job: Job, vertex: Vertex) -> dict[str, Any]:
    return {
        "id": vertex.id,
        "name": vertex.name,
        "parallelism": vertex.parallelism,
        "maxParallelism": 128,
        "now": now_ms(),
        "subtasks": [subtask(job, vertex, n) for n in range(vertex.parallelism)],
    }


def subtask_times(job: Job, vertex: Vertex) -> dict[str, Any]:
    def since(n: int) -> dict[str, int]:
        begun = job.start_ms + 10 * n
        moves = {"CREATED": begun, "SCHEDULED": begun + 5, "DEPLOYING": begun + 60, "INITIALIZING": begun + 300}
        moves["RUNNING"] = begun + 900
        return {**dict.fromkeys(TASK_STATES, 0), **moves, **({job.state: job.end_ms} if job.has_ended else {})}

    return {
        "id": vertex.id,
        "name": vertex.name,
        "now": now_ms(),
        "subtasks": [
            {"subtask": n, "endpoint": "10.0.0.6", "duration": int(job.seconds * 1000), "timestamps": since(n)}
            for n in range(vertex.parallelism)
        ],
    }


def metric_values(job: Job, vertex: Vertex) -> dict[str, list[float]]:
    """By Flink's names, a value for each subtask."""
    at = job.seconds
    each = range(vertex.parallelism)
    busy = [1000 * vertex.share(n, at, vertex.busy) for n in each]
    held = [min(1000 - busy[n], 1000 * vertex.share(n, at, vertex.held)) for n in each]
    values = {
        "numRecordsInPerSecond": [vertex.records_in / vertex.parallelism * vertex.swing(n, at) for n in each],
        "numRecordsOutPerSecond": [vertex.records_out / vertex.parallelism * vertex.swing(n, at) for n in each],
        "busyTimeMsPerSecond": busy,
        "backPressuredTimeMsPerSecond": held,
        "idleTimeMsPerSecond": [1000 - busy[n] - held[n] for n in each],
        "buffers.inPoolUsage": [0.2 + 0.1 * math.sin(at / 5 + n) for n in each],
        "numRecordsIn": [float(int(vertex.total(n, at, vertex.records_in))) for n in each],
    }
    if vertex.lag_ms is not None:
        values["currentInputWatermark"] = [float(now_ms() - vertex.lag_ms - 20 * n) for n in each]
    return values


def back_pressure(job: Job, vertex: Vertex) -> dict[str, Any]:
    values = metric_values(job, vertex)

    def level(ratio: float) -> str:
        return "ok" if ratio <= 0.1 else "low" if ratio <= 0.5 else "high"

    ratios = [value / 1000 for value in values["backPressuredTimeMsPerSecond"]]
    return {
        "status": "ok",
        "backpressureLevel": level(max(ratios)),
        "backpressure-level": level(max(ratios)),
        "end-timestamp": now_ms(),
        "subtasks": [
            {
                "subtask": n,
                "attempt-number": 0,
                "backpressureLevel": level(ratio),
                "backpressure-level": level(ratio),
                "ratio": ratio,
                "idleRatio": values["idleTimeMsPerSecond"][n] / 1000,
                "busyRatio": values["busyTimeMsPerSecond"][n] / 1000,
            }
            for n, ratio in enumerate(ratios)
        ],
    }


def flame_graph() -> dict[str, Any]:
    def frame(name: str, value: int, *children: dict[str, Any]) -> dict[str, Any]:
        return {"name": name, "value": value, "children": list(children)}

    loop = frame(
        "step (penstock/runtime/task/stream_task.py)",
        320,
        frame(
            "process_batch (penstock/runtime/operators/record/process.py)",
            250,
            frame("process_element (orders.py)", 190, frame("convert (orders.py)", 120), frame("loads (json)", 40)),
            frame("value (penstock/state/value.py)", 45),
        ),
        frame("flush (penstock/runtime/task/channels/result_partition.py)", 60),
    )
    wait = frame("poll (zmq)", 80)
    return {"endTimestamp": now_ms(), "data": frame("root", 400, frame("main (worker.py)", 400, loop, wait))}


def build_figures(job: Job, n: int, state_bytes: int, subtasks: int) -> dict[str, Any]:
    took = int(340 + 120 * math.sin(n / 3))
    at = job.start_ms + n * CHECKPOINT_EVERY_S * 1000
    return {
        "id": n,
        "status": "COMPLETED",
        "latest_ack_timestamp": at + took,
        "checkpointed_size": int(state_bytes * (0.08 + 0.03 * math.sin(n))),
        "state_size": int(state_bytes * (1 + 0.002 * (n % 100))),
        "end_to_end_duration": took,
        "alignment_buffered": 0,
        "processed_data": 18_000,
        "persisted_data": 0,
        "num_subtasks": subtasks,
        "num_acknowledged_subtasks": subtasks,
    }


def checkpoint(job: Job, n: int, *, with_tasks: bool = False) -> dict[str, Any]:
    state = sum(vertex.state_bytes for vertex in job.vertices) or MEBI
    total = sum(vertex.parallelism for vertex in job.vertices)
    found: dict[str, Any] = {
        **build_figures(job, n, state, total),
        "className": "completed",
        "is_savepoint": False,
        "savepointFormat": None,
        "trigger_timestamp": job.start_ms + n * CHECKPOINT_EVERY_S * 1000,
        "checkpoint_type": "CHECKPOINT",
        "external_path": f"file:/var/checkpoints/{job.id}/chk-{n}",
        "discarded": False,
        "tasks": {},
    }
    if with_tasks:
        found["tasks"] = {
            vertex.id: build_figures(job, n, vertex.state_bytes, vertex.parallelism) for vertex in job.vertices
        }
    if n % 7 == 3:
        failed = {"status": "FAILED", "className": "failed", "num_acknowledged_subtasks": total // 2}
        found |= {**failed, "failure_timestamp": found["latest_ack_timestamp"], "failure_message": "It timed out."}
    return found


def checkpoints(job: Job) -> dict[str, Any]:
    newest = int(job.seconds // CHECKPOINT_EVERY_S)
    history = [checkpoint(job, n) for n in range(newest, max(0, newest - SHOWN_CHECKPOINTS), -1)]
    failed = [one for one in history if one["status"] == "FAILED"]
    savepoint = None
    if job.savepoints:
        n, at, path = job.savepoints[-1]
        savepoint = {**checkpoint(job, newest), "id": n, "is_savepoint": True, "checkpoint_type": "SAVEPOINT"}
        savepoint |= {"latest_ack_timestamp": at, "trigger_timestamp": at - 900, "external_path": path}
        savepoint |= {"status": "COMPLETED", "className": "completed"}
        history = [savepoint, *history]

    def statistic(value: float) -> dict[str, float]:
        spread = {"min": 0.6, "max": 1.9, "avg": 1.0, "p50": 0.95, "p90": 1.4, "p95": 1.6, "p99": 1.8, "p999": 1.9}
        whole = ("min", "max", "avg")
        return {key: int(value * share) if key in whole else value * share for key, share in spread.items()}

    return {
        "counts": {
            "restored": len(job.failures),
            "total": newest,
            "in_progress": 0,
            "completed": newest - newest // 7,
            "failed": newest // 7,
        },
        "summary": {key: statistic(history[0][key]) for key in SUMMED_UP} if history else {},
        "latest": {
            "completed": next((one for one in history if one["status"] == "COMPLETED"), None),
            "savepoint": savepoint,
            "failed": failed[0] if failed else None,
            "restored": restored(job),
        },
        "history": history,
    }


def vertex_checkpoint(job: Job, n: int, vertex: Vertex) -> dict[str, Any]:
    of = build_figures(job, n, vertex.state_bytes, vertex.parallelism)

    def part(index: int) -> dict[str, Any]:
        share = vertex.swing(index, 0) / vertex.parallelism
        return {
            "index": index,
            "status": "completed",
            "ack_timestamp": of["latest_ack_timestamp"],
            "end_to_end_duration": of["end_to_end_duration"] - 3 * (index % 40),
            "checkpointed_size": int(of["checkpointed_size"] * share),
            "state_size": int(of["state_size"] * share),
            "checkpoint": {"sync": 4, "async": 120},
            "alignment": {"buffered": 0, "processed": 4500, "persisted": 0, "duration": 11},
            "start_delay": 6,
            "unaligned_checkpoint": False,
            "aborted": False,
        }

    return {**of, "subtasks": [part(index) for index in range(vertex.parallelism)]}
