"""The server: paths to answers, and what is asked of jobs."""

from __future__ import annotations

import json
import mimetypes
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.server.page.mock import answers
from tests.server.page.mock.jobs import MEBI, WORKERS, Job, hex_id, made_up, now_ms, worker_id

LOG = "".join(f"2026-01-05 10:00:{n % 60:02d},000 INFO penstock.worker - step {n} of the loop\n" for n in range(400))
#: The last parts of paths that reveal data of users.
SECRET = ("exceptions", "watermark-hold", "checkpoints")


class NotFound(Exception):
    """There is no such thing."""


def ignored_rescale(number: int) -> dict[str, Any]:
    """A request for another parallelism that the job did not follow."""
    step = {"state": "Executing", "stringifiedException": "it needs 7 slots, and there are 4"}
    ended = {"terminalState": "IGNORED", "terminatedReason": "NO_RESOURCES_OR_PARALLELISMS_CHANGE"}
    return {"rescaleUuid": hex_id(f"rescale {number}"), "triggerCause": "UPDATE_REQUIREMENT", **ended} | {
        "schedulerStates": [step]
    }


class World:
    """The jobs, and what has been asked of them; `requests` are those that change something, `busy_s` how long
    savepoints and the like take."""

    def __init__(self, wide: int = 0, token: str = "", busy_s: float = 1.5) -> None:
        self.jobs = made_up(wide)
        self.token = token
        #: whether only failures, checkpoints and the like need the token, as on loopback
        self.shows_the_rest = False
        self.busy_s = busy_s
        self.requests: list[tuple[str, str, Any]] = []
        self.triggers: dict[str, tuple[float, Callable[[], dict[str, Any]]]] = {}
        self.results: dict[str, dict[str, Any]] = {}
        self.lock = threading.Lock()
        self.fails_savepoints = False
        self.lacks_slots = False
        self.rescales: list[dict[str, Any]] = []

    def job(self, job_id: str) -> Job:
        found = next((job for job in self.jobs if job.id == job_id), None)
        if found is None:
            raise NotFound(f"Job {job_id} not found")
        return found

    # --- what is asked --------------------------------------------------------------------------------------------

    def change(self, method: str, parts: list[str], body: Any) -> Any:
        match [method, *parts]:
            case ["PATCH", "jobs", job_id]:
                self.job(job_id).end("CANCELED")
                return {}
            case ["POST", "jobs", job_id, "savepoints" | "stop" | "checkpoints" as what]:
                return {"request-id": self.begin(self.job(job_id), what, body)}
            case ["PUT", "jobs", job_id, "resource-requirements"]:
                job = self.job(job_id)
                if self.lacks_slots:
                    self.rescales.insert(0, ignored_rescale(len(self.rescales)))
                    return {}
                for vertex in job.vertices:
                    vertex.parallelism = body[vertex.id]["parallelism"]["upperBound"]
                return {}
        raise NotFound(f"Not found: /{'/'.join(parts)}")

    def begin(self, job: Job, what: str, body: dict[str, Any]) -> str:
        trigger = hex_id(f"{what} {len(self.triggers)}")
        directory = body.get("target-directory") or body.get("targetDirectory") or "file:/var/savepoints"

        def end() -> dict[str, Any]:
            if self.fails_savepoints:
                trace = "penstock.base.errors.CheckpointError: /var/savepoints is full\n"
                return {"failure-cause": {"class": "CheckpointError", "stack-trace": trace}}
            if what == "checkpoints":
                return {"checkpointId": int(job.seconds // answers.CHECKPOINT_EVERY_S)}
            path = f"{directory}/savepoint-{job.id[:6]}-{trigger[:8]}"
            job.savepoints.append((9000 + len(job.savepoints), now_ms(), path))
            if what == "stop":
                job.end("FINISHED")
            return {"location": path}

        self.triggers[trigger] = (now_ms() + self.busy_s * 1000, end)
        return trigger

    def trigger(self, trigger: str) -> dict[str, Any]:
        if trigger not in self.triggers:
            raise NotFound(f"Operation {trigger} not found")
        due, end = self.triggers[trigger]
        if now_ms() < due:
            return {"status": {"id": "IN_PROGRESS"}, "operation": None}
        if trigger not in self.results:
            self.results[trigger] = end()
        return {"status": {"id": "COMPLETED"}, "operation": self.results[trigger]}

    # --- what is shown --------------------------------------------------------------------------------------------

    def show(self, parts: list[str], query: dict[str, list[str]]) -> Any:
        match parts:
            case ["config"]:
                features = {"web-submit": False, "web-cancel": True, "web-rescale": True, "web-history": False}
                zone = {"timezone-name": "UTC", "timezone-offset": 0}
                version = {"flink-version": "2.3.0", "flink-revision": "mock"}
                return {"refresh-interval": 3000, **zone, **version, "features": features}
            case ["overview"]:
                return self.overview()
            case ["jobs", "overview"]:
                return {"jobs": [answers.summary(job) for job in self.jobs]}
            case ["jobs", job_id, *rest]:
                return self.of_job(self.job(job_id), rest, query)
            case ["taskmanagers"]:
                return {"taskmanagers": [self.worker(n) for n in range(WORKERS)]}
            case ["taskmanagers", worker, *rest] if worker in map(worker_id, range(WORKERS)):
                return self.of_process(rest, query, self.worker(int(worker[-1])))
            case ["jobmanager", *rest]:
                return self.of_process(rest, query, {})
        raise NotFound(f"Unable to load requested file /{'/'.join(parts)}.")

    def overview(self) -> dict[str, Any]:
        ended = {state: sum(job.state == state for job in self.jobs) for state in ("FINISHED", "CANCELED", "FAILED")}
        return {
            "taskmanagers": WORKERS,
            "slots-total": WORKERS,
            "slots-available": 0,
            "jobs-running": sum(not job.has_ended for job in self.jobs),
            "jobs-finished": ended["FINISHED"],
            "jobs-cancelled": ended["CANCELED"],
            "jobs-failed": ended["FAILED"],
            "flink-version": "2.3.0",
            "flink-commit": "mock",
        }

    def of_job(self, job: Job, parts: list[str], query: dict[str, list[str]]) -> Any:
        match parts:
            case []:
                return answers.details(job)
            case ["watermark-hold"]:
                return {"status": "ok", "reason": None, "now": now_ms(), "holds": answers.holds(job)}
            case ["status-history"]:
                return answers.status_history(job)
            case ["status"]:
                return {"status": job.state}
            case ["checkpoints"]:
                return answers.checkpoints(job)
            case ["checkpoints", "config"]:
                return {"mode": "exactly_once", "interval": 10_000, "timeout": 600_000, "min_pause": 0}
            case ["checkpoints", "details", n]:
                return answers.checkpoint(job, int(n), with_tasks=True)
            case ["checkpoints", "details", n, "subtasks", vertex_id] if vertex := job.vertex(vertex_id):
                return answers.vertex_checkpoint(job, int(n), vertex)
            case ["checkpoints" | "savepoints", trigger]:
                return self.trigger(trigger)
            case ["exceptions"]:
                most = int(query.get("maxExceptions", ["20"])[0])
                history = {"entries": job.failures[:most], "truncated": len(job.failures) > most}
                return {"exceptionHistory": history}
            case ["config"]:
                config = {"restart-strategy": "exponential-delay", "job-parallelism": 4, "object-reuse-mode": False}
                return {
                    "jid": job.id,
                    "name": job.name,
                    "execution-config": {**config, "user-config": {"input": "orders", "region": "eu"}},
                }
            case ["jobmanager", "config"]:
                return [{"key": f"option.{n}", "value": str(n)} for n in range(20)]
            case ["rescales", "history"]:
                return self.rescales
            case ["resource-requirements"]:
                bounds = {vertex.id: {"lowerBound": 1, "upperBound": vertex.parallelism} for vertex in job.vertices}
                return {vertex_id: {"parallelism": bound} for vertex_id, bound in bounds.items()}
            case ["vertices", vertex_id, *rest] if vertex := job.vertex(vertex_id):
                return self.of_vertex(job, vertex, rest, query)
        raise NotFound(f"Unable to load requested file /{'/'.join(parts)}.")

    def of_vertex(self, job: Job, vertex: Any, parts: list[str], query: dict[str, list[str]]) -> Any:
        match parts:
            case []:
                return answers.vertex_details(job, vertex)
            case ["subtasktimes"]:
                return answers.subtask_times(job, vertex)
            case ["backpressure"]:
                return answers.back_pressure(job, vertex)
            case ["flamegraph"]:
                return answers.flame_graph()
            case ["accumulators"]:
                found = [{"name": name, "type": kind, "value": value} for name, kind, value in vertex.accumulators]
                return {"id": vertex.id, "user-accumulators": found}
            case ["watermarks"]:
                values = answers.metric_values(job, vertex).get("currentInputWatermark", [])
                return [{"id": f"{n}.currentInputWatermark", "value": str(int(at))} for n, at in enumerate(values)]
            case ["subtasks", "metrics"]:
                known = answers.metric_values(job, vertex)
                if "get" not in query:
                    return [{"id": name} for name in known]
                asked = {name: known[name] for name in query["get"][0].split(",") if name in known}
                return [
                    {"id": name, "min": min(of), "max": max(of), "avg": sum(of) / len(of), "sum": sum(of)}
                    for name, of in asked.items()
                ]
        raise NotFound(f"Unable to load requested file /{'/'.join(parts)}.")

    def worker(self, n: int) -> dict[str, Any]:
        running = [job for job in self.jobs if not job.has_ended]
        return {
            "id": worker_id(n),
            "path": f"10.0.0.{n + 6}:40112",
            "dataPort": 40113,
            "jmxPort": -1,
            "timeSinceLastHeartbeat": now_ms() - 800,
            "slotsNumber": 1,
            "freeSlots": 0,
            "assignedTasks": len(running),
            "hardware": {
                "cpuCores": 4,
                "physicalMemory": 16_384 * MEBI,
                "freeMemory": (9000 - 900 * n) * MEBI,
                "managedMemory": 0,
            },
            "memoryConfiguration": {"totalProcessMemory": 4096 * MEBI, "managedMemory": 512 * MEBI, "taskHeap": None},
            "metrics": {"heapUsed": (1400 + 300 * n) * MEBI, "garbageCollectors": []},
            "job-id": self.jobs[n % 2].id,
            "job-name": self.jobs[n % 2].name,
            "allocatedSlots": [{"jobId": job.id, "assignedTasks": len(job.vertices)} for job in running],
        }

    def of_process(self, parts: list[str], query: dict[str, list[str]], details: dict[str, Any]) -> Any:
        match parts:
            case []:
                return details
            case ["logs"]:
                return {"logs": [{"name": "penstock.log", "size": len(LOG), "mtime": now_ms()}]}
            case ["log"] | ["logs", "penstock.log"]:
                return LOG
            case ["stdout"]:
                return "a print of the user\n"
            case ["thread-dump"]:
                stack = '"main" Id=1 RUNNABLE\n    at worker.py:120 in loop\n'
                return {"threadInfos": [{"threadName": "main", "stringifiedThreadInfo": stack}]}
            case ["config"]:
                secret = {"key": "s3.secret-key", "value": "******"}
                return [secret, *({"key": f"cluster.option.{n}", "value": str(n)} for n in range(20))]
            case ["environment"]:
                jvm = {"version": "CPython 3.11", "arch": "x86_64", "options": []}
                return {"jvm": jvm, "classpath": ["/srv/jobs", "/opt/venv/lib/python3.11/site-packages"]}
            case ["metrics"]:
                values = {"Status.JVM.Memory.Heap.Used": 1400 * MEBI, "Status.JVM.Threads.Count": 14}
                if "get" not in query:
                    return [{"id": name} for name in values]
                return [{"id": name, "value": str(values[name])} for name in query["get"][0].split(",")]
        raise NotFound(f"Unable to load requested file /{'/'.join(parts)}.")


class MockServer:
    """Serves a world, and the page if its files are given, on a free port until it is closed."""

    def __init__(self, world: World, page: Path | None, port: int = 0) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_request(self) -> None:
                url = urlsplit(self.path)
                parts = [unquote(part) for part in url.path.split("/") if part]
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.command == "GET" and page and (not parts or parts[0] == "assets"):
                    return self.file(page / ("/".join(parts) or "index.html"))
                needs_token = not world.shows_the_rest or parts[-1] in SECRET
                if world.token and needs_token and self.headers.get("Authorization") != f"Bearer {world.token}":
                    return self.answer(401, {"errors": ["A token is needed."]})
                try:
                    with world.lock:
                        if self.command == "GET":
                            return self.answer(200, world.show(parts, parse_qs(url.query)))
                        asked = json.loads(body) if body else None
                        world.requests.append((self.command, url.path, asked))
                        return self.answer(202, world.change(self.command, parts, asked))
                except NotFound as error:
                    return self.answer(404, {"errors": [str(error)]})

            do_GET = do_POST = do_PUT = do_PATCH = handle_request

            def file(self, path: Path) -> None:
                if not path.is_file():
                    return self.answer(404, {"errors": ["no such file"]})
                self.send(200, mimetypes.guess_type(path.name)[0] or "text/plain", path.read_bytes())

            def answer(self, status: int, value: Any) -> None:
                text = value if isinstance(value, str) else json.dumps(value)
                self.send(status, "text/plain" if isinstance(value, str) else "application/json", text.encode())

            def send(self, status: int, kind: str, data: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # a browser that leaves closes its connections

        self._server = Server(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
