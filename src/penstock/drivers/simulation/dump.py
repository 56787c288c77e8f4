"""State of a stalled history: the job master, its checkpoints, and every task with its channels."""

from __future__ import annotations

from penstock.core.task.stream_task import StreamTask
from penstock.drivers.simulation.watched import Watched


def dump(simulation: Watched) -> str:
    """Return the dump as multi-line text."""
    master, checkpoints = simulation.master, simulation.master.checkpoints
    states = " ".join(f"{e.id}={e.state.value}" for e in master._graph.executions())
    lines = [
        f"job {master.status.name} at {simulation.engine.steady_ms()} ms, restarts {master.history.restarts}, {states}",
        f"kept checkpoints {[m.checkpoint_id for m in checkpoints.completed]}, last id {checkpoints._last_id}, "
        f"next deadline {master.next_deadline()}, next trigger {checkpoints._next_ms}",
    ]
    for pending in checkpoints._pending.values():
        missing = sorted(str(e) for e in pending.missing)
        lines.append(
            f"pending checkpoint {pending.checkpoint_id}: completing={pending.is_completing} missing {missing}"
        )
    for worker in simulation.cluster.workers.values():
        enabled = worker.position >= 0
        lines.append(
            f"{worker.worker_id}: enabled={enabled} timer={worker.timer_ms} wake={worker.wake_ms} "
            f"jobs={len(worker.background.jobs)}"
        )
        lines += [f"  {line}" for task in worker.executor.tasks for line in _task(task)]
    lines += [f"channel {c.name}: {len(c.items)} waiting" for c in simulation.cluster.control.values() if c.items]
    lines += [f"channel {c.name}: {len(c.items)} waiting" for c in simulation.cluster.data.values() if c.items]
    return "\n".join(lines)


def _task(task: StreamTask) -> list[str]:
    lines = [f"task {task.execution} {task.phase.value} mail={len(task.mail)} last={task.ending.last_checkpoint_id}"]
    for c in task.gate.channels:
        marks = [word for word in ("is_blocked", "end_of_data", "ended") if getattr(c, word)]
        lines.append(f"  in {c.channel}: {len(c.queue)} buffers {' '.join(marks)}")
    for partition in task.partitions.values():
        for s in partition.subpartitions:
            lines.append(f"  out {s.channel}: credit={s.credit} queued={len(s._queue)} open={s.has_open_data}")
    return lines
