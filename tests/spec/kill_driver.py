"""Kill the driver with SIGKILL at random moments, start it again as an operator would, and look what is left (E7, G8).

`python -m tests.spec.kill_driver --kills 100 --mode STREAMING` kills a driver, starts the same program again, and goes
on like this. The last driver runs to the end of the job. Then the committed output must be what a plain Python
computation gives, no process of any driver may be running 30 s after it was killed, and nothing may be left on disk but
the output and the two small files that say how the job has ended. `--target` may be `local` or a Spark master. The seed
that it prints makes the moments of the kills the same again (those of everything else are the machine's).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import click
from tests.spec.kill_loop import build, check_output

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment

#: How long anything of a killed driver may go on.
PATIENCE_S: Final = 30.0
#: The processes of a driver inherit this, with a value of its own.
MARKER: Final = "PENSTOCK_TESTED_DRIVER"
MODES: Final = ("STREAMING", "MICRO_BATCH", "BATCH")
#: How long (s) a driver lives; a batch begins from the start each time, and has to come to its end now and then.
PAUSE_S: Final = (0.5, 4.0)
PAUSE_OF_BATCHES_S: Final = (0.5, 6.0)
#: How many times faster a batch reads.
BATCH_SPEED: Final = 5


def run(folder: str, mode: str, target: str, records: int, rate: float) -> None:
    """The program: it knows nothing of the ones before."""
    checkpoints = {
        "execution.checkpointing.dir": f"{folder}/checkpoints",
        "execution.checkpointing.interval": "200 ms",
        "execution.micro-batch.interval": "200 ms",
        "execution.micro-batch.max-records": str(max(1, int(rate / 10))),
        "penstock.recovery.from-latest": "true",
    }
    configuration = Configuration.from_dict(
        {
            "execution.runtime-mode": mode,
            "restart-strategy.type": "none",
            **({} if mode == "BATCH" else checkpoints),
            **({"execution.target": "local"} if target == "local" else {"spark.master": target}),
        }
    )
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    rates = {"STREAMING": rate, "MICRO_BATCH": None, "BATCH": rate * BATCH_SPEED}
    build(env, records, rates[mode], f"{folder}/out")
    env.execute("kill driver")


def processes_of(marker: str) -> list[int]:
    """All that a driver has started, and itself."""
    wanted, found = f"{MARKER}={marker}".encode(), []
    for directory in Path("/proc").iterdir():
        if directory.name.isdecimal():
            with suppress(OSError):
                if wanted in (directory / "environ").read_bytes().split(b"\0"):
                    found.append(int(directory.name))
    return found


def left_on_disk(folder: Path) -> Iterator[str]:
    """What belongs to nobody: all but the output, how the job has ended, and the number of its last driver."""
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        is_output = name.startswith("out/") and not path.name.startswith((".", "_"))
        is_record = name.startswith("checkpoints/jobs")
        if path.is_file() and not is_output and not is_record and not name.startswith("log-"):
            yield name
    records = [path.name for path in (folder / "checkpoints/jobs").rglob("*") if path.is_file()]
    if len(records) > 3:  # how the job has ended, the number of the last driver, and what that one found
        yield f"{len(records)} records of drivers: {sorted(records)}"


class Killer:
    """Runs one job with as many drivers as it takes."""

    def __init__(self, folder: Path, mode: str, target: str, records: int, rate: float) -> None:
        self.folder = folder
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self._arguments = [str(folder), mode, target, str(records), str(rate)]
        #: when each driver was killed whose processes have not been seen to end
        self._ending: dict[str, float] = {}
        self.longest_s = 0.0

    def start(self, number: int) -> subprocess.Popen[bytes]:
        """A driver; what it says goes to a file."""
        command = [sys.executable, "-m", "tests.spec.kill_driver", "--run", *self._arguments]
        environment = {**os.environ, MARKER: str(number), "TMPDIR": str(self.temporary)}
        with (self.folder / f"log-{number}").open("wb") as log:
            return subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def outlives(self, process: subprocess.Popen[bytes], seconds: float) -> bool:
        """Whether a driver still runs after some time; meanwhile, those before it have to end."""
        until = time.monotonic() + seconds
        while process.poll() is None:
            if time.monotonic() >= until:
                return True
            self.check_ended()
            time.sleep(0.05)
        return False

    def kill(self, number: int, process: subprocess.Popen[bytes]) -> None:
        """The driver alone: what it has started has to end by itself."""
        process.send_signal(signal.SIGKILL)
        process.wait()
        self._ending[str(number)] = time.monotonic()

    def check_ended(self) -> None:
        """Raise `AssertionError` if a process of a killed driver still runs after the patience."""
        for marker, killed_s in list(self._ending.items()):
            since_s = time.monotonic() - killed_s
            if not (left := processes_of(marker)):
                del self._ending[marker]
                self.longest_s = max(self.longest_s, since_s)
            elif since_s > PATIENCE_S:
                lines = [Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ")[:200] for process in left]
                raise AssertionError(f"{since_s:.0f} s after driver {marker} was killed, these go on: {lines}")

    def await_all_ended(self) -> None:
        """Wait for the processes of all drivers that were killed."""
        while self._ending:
            self.check_ended()
            time.sleep(0.1)


def kill_and_check(
    chance: random.Random, kills: int, mode: str, target: str, records: int, rate: float, pause_s: tuple[float, float]
) -> str:
    """Run one job, and kill its driver up to that many times; returns what was seen. Raises when something is wrong."""
    with tempfile.TemporaryDirectory(prefix="penstock-kill-driver-") as name:
        folder = Path(name)
        killer, done, begun_s = Killer(folder, mode, target, records, rate), 0, time.monotonic()
        for number in range(kills + 1):
            process = killer.start(number)
            if killer.outlives(process, chance.uniform(*pause_s) if number < kills else float("inf")):
                killer.kill(number, process)
                done += 1
                continue
            if process.returncode:
                raise AssertionError(f"driver {number} failed: {(folder / f'log-{number}').read_text()[-2000:]}")
            break
        killer.await_all_ended()
        check_output(records, f"{folder}/out", done)
        if left := sorted(left_on_disk(folder)):
            raise AssertionError(f"after {done} kills, {len(left)} files belong to nobody: {left[:10]}")
        took_s = time.monotonic() - begun_s
        return (
            f"{done} kills, {took_s:.0f} s: output equal, nothing left; processes ended within {killer.longest_s:.1f} s"
        )


@click.command()
@click.option("--kills", default=100, show_default=True, help="Drivers to kill in all.")
@click.option("--kills-per-job", default=25, show_default=True, help="Drivers to kill of one job at most.")
@click.option("--mode", default="STREAMING", show_default=True, type=click.Choice(MODES))
@click.option("--target", default="local", show_default=True, help="local, or a Spark master such as local[2].")
@click.option("--records", default=40_000, show_default=True, help="Records a job.")
@click.option("--rate", default=2_000.0, show_default=True, help="Records a second.")
@click.option("--pause", nargs=2, type=float, default=None, help="How long (s) a driver lives; by default 0.5 to 4.")
@click.option("--seed", default=None, type=int, help="Makes the moments of the kills the same again.")
@click.option("--run", "arguments", nargs=5, default=None, hidden=True)
def main(
    kills: int,
    kills_per_job: int,
    mode: str,
    target: str,
    records: int,
    rate: float,
    pause: tuple[float, float] | None,
    seed: int | None,
    arguments: tuple[str, str, str, str, str] | None,
) -> None:
    """Kill drivers, and look at the output and at what is left, every time."""
    if arguments is not None:
        run(*arguments[:3], int(arguments[3]), float(arguments[4]))
        return
    pause = pause or (PAUSE_OF_BATCHES_S if mode == "BATCH" else PAUSE_S)
    seed = int(time.time()) if seed is None else seed
    print(f"seed {seed}")
    chance, done, jobs = random.Random(seed), 0, 0
    while done < kills:
        report = kill_and_check(chance, min(kills - done, kills_per_job), mode, target, records, rate, pause)
        done += int(report.split()[0])
        jobs += 1
        print(f"job {jobs}: {report}", flush=True)
    print(f"{done} kills in {jobs} jobs of {mode} on {target}: the committed output was equal every time")


if __name__ == "__main__":
    main()
