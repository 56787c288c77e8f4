"""ML_PREDICT through kills: `python -m tests.table.models.kills [--rows N] [--kills N] [--rate N] [--failing SHARE]`.

A job asks an endpoint on this machine for each of its rows, under a limit of requests per second, and writes the
answers to files exactly once. The endpoint fails a share of the requests. The process of the job is killed several
times (SIGKILL) and goes on from its last checkpoint. At the end each row has one answer, and the rate was kept.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from tests.simulation.fresh_seeds import fresh_seeds
from tests.table.models.endpoint import Endpoint, serving

#: within this time (s) the number of requests is compared with the limit
WINDOW_S = 1.0
_JOB = """
import sys
from penstock.table import EnvironmentSettings, TableEnvironment

url, folder, rows, rate, mode, savepoint = sys.argv[1:]
settings = EnvironmentSettings.in_streaming_mode()
options = settings.get_configuration()
options.set_string("execution.target", "local")
options.set_string("execution.checkpointing.interval", "200 ms")
options.set_string("execution.checkpointing.dir", f"file://{folder}/checkpoints")
options.set_string("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION")
options.set_string("table.exec.async-ml-predict.output-mode", mode)
if savepoint:
    options.set_string("execution.state-recovery.path", savepoint)
t_env = TableEnvironment.create(settings)
t_env.execute_sql(
    "CREATE TABLE questions (id BIGINT) WITH ('connector' = 'datagen', 'fields.id.kind' = 'sequence', "
    f"'fields.id.start' = '1', 'fields.id.end' = '{rows}', 'rows-per-second' = '1000000')"
)
t_env.execute_sql(
    "CREATE TABLE answers (id BIGINT, answer STRING) WITH ('connector' = 'filesystem', 'format' = 'json', "
    f"'path' = '{folder}/answers')"
)
t_env.execute_sql(
    "CREATE MODEL oracle INPUT (question STRING) OUTPUT (answer STRING) WITH ('provider' = 'openai', "
    f"'endpoint' = '{url}chat/completions', 'api-key' = 'none', 'model' = 'm', 'retry-delay' = '10 ms', "
    f"'requests-per-second' = '{rate}')"
)
t_env.execute_sql(
    "INSERT INTO answers SELECT id, answer FROM ML_PREDICT((SELECT id, CAST(id AS STRING) AS question FROM questions), "
    "MODEL oracle, DESCRIPTOR(question), MAP['max-concurrent-operations', '20'])"
).wait()
"""


@dataclass
class Outcome:
    """What a run has shown: the answers in their files, and what the endpoint was asked."""

    answers: list[tuple[int, str]]
    requests: int
    failures: int
    most_in_window: int
    kills: int

    def problem(self, rows: int, rate: float) -> str:
        """What is wrong, or nothing."""
        if sorted(self.answers) != [(number, f"{number}!0") for number in range(1, rows + 1)]:
            numbers = [number for number, _ in self.answers]
            missing = sorted(set(range(1, rows + 1)) - set(numbers))
            return f"{len(numbers) - len(set(numbers))} rows twice, {len(missing)} missing: {missing[:5]}"
        # Each run of the job may begin a window of its own.
        most = rate * WINDOW_S * 2 + 2
        return f"{self.most_in_window} requests in {WINDOW_S} s" if self.most_in_window > most else ""


def last_checkpoint(folder: Path) -> str:
    """The newest complete checkpoint; empty if there is none."""
    found = sorted(folder.glob("checkpoints/*/chk-*/_metadata"), key=lambda path: path.stat().st_mtime)
    return str(found[-1].parent) if found else ""


def run(rows: int, kills: int, rate: float, failing: float, seed: int, mode: str = "ORDERED") -> Outcome:
    """Run the job, and kill its process that many times."""
    with tempfile.TemporaryDirectory() as name, serving(Endpoint(failing, seed)) as endpoint:
        folder = Path(name)
        done = 0
        while True:
            arguments = [endpoint.url, name, str(rows), str(rate), mode, last_checkpoint(folder)]
            process = subprocess.Popen([sys.executable, "-c", _JOB, *arguments], env=os.environ)
            if done < kills and _waited(process, endpoint, folder, rows * (done + 1) // (kills + 1)):
                process.send_signal(signal.SIGKILL)
                process.wait()
                done += 1
                continue
            if process.wait() != 0:
                raise RuntimeError("the job has failed")
            break
        times = sorted(endpoint.times_s)
        most = max(
            sum(begin <= other < begin + WINDOW_S for other in times[index:]) for index, begin in enumerate(times)
        )
        return Outcome(list(_answers(folder)), len(times), endpoint.failures, most, done)


def _waited(process: subprocess.Popen[bytes], endpoint: Endpoint, folder: Path, asked: int) -> bool:
    """Wait until that many rows are asked for and there is a new checkpoint; False if the job ends before."""
    before = last_checkpoint(folder)
    while len(set(endpoint.asked())) < asked or last_checkpoint(folder) == before:
        if process.poll() is not None:
            return False
        time.sleep(0.02)
    return True


def _answers(folder: Path) -> Sequence[tuple[int, str]]:
    paths = [
        path for path in (folder / "answers").rglob("*") if path.is_file() and not path.name.startswith((".", "_"))
    ]
    lines = [line for path in paths for line in path.read_text().splitlines()]
    return [(row["id"], row["answer"]) for row in map(json.loads, lines)]


@click.command()
@click.option("--rows", default=10_000, help="How many rows there are.")
@click.option("--kills", default=3, help="How often the process is killed.")
@click.option("--rate", default=500.0, help="The limit of requests per second.")
@click.option("--failing", default=0.05, help="The share of requests that fail.")
@click.option("--mode", type=click.Choice(["ORDERED", "ALLOW_UNORDERED"]), default="ORDERED")
def main(rows: int, kills: int, rate: float, failing: float, mode: str) -> None:
    """Run it, and print what it has shown."""
    seed = fresh_seeds()[0]
    outcome = run(rows, kills, rate, failing, seed, mode)
    problem = outcome.problem(rows, rate)
    print(
        f"seed {seed}: {rows} rows, {outcome.kills} kills, {outcome.requests} requests, of which the endpoint failed "
        f"{outcome.failures}; at most {outcome.most_in_window} in {WINDOW_S} s, limit {rate:g}: {problem or 'right'}"
    )
    sys.exit(bool(problem))


if __name__ == "__main__":
    main()
