"""`penstock run` and `penstock info`: a program as it is, in a process of its own, with options from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
from penstock.datastream import StreamExecutionEnvironment

class Number:
    def __init__(self, value):
        self.value = value

env = StreamExecutionEnvironment.get_execution_environment()
print("arguments", sys.argv[1:], "parallelism", env.get_parallelism(), __name__)
if "exit" in sys.argv:
    sys.exit(7)
numbers = env.from_collection(range(3)).map(Number)
if "fail" in sys.argv:
    numbers = numbers.map(lambda number: 1 // 0)
numbers.map(lambda number: number.value).print()
env.execute("numbers")
print("after")
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "numbers.py"
    path.write_text(PROGRAM)
    return path


def penstock(*args: str, code: int = 0, **environment: str) -> list[str]:
    """The lines that a command prints on stdout."""
    outer = {key: value for key, value in os.environ.items() if not key.endswith("_CONF_DIR")}
    command = [sys.executable, "-m", "penstock.cli.main", *args]
    found = subprocess.run(command, capture_output=True, text=True, env=outer | environment, check=False)
    assert found.returncode == code, found.stderr
    return found.stdout.splitlines() + (found.stderr.splitlines() if code else [])


LOCAL = ("-t", "local", "--no-rest")


def test_a_program_runs_as_it_is_and_prints_flinks_lines(program: Path) -> None:
    lines = penstock("run", *LOCAL, "-p", "2", str(program), "--size", "1")
    assert lines[0] == "arguments ['--size', '1'] parallelism 2 __main__"
    (submitted,) = [line for line in lines if line.startswith("Job has been submitted with JobID ")]
    job, rest = submitted.split()[-1], lines[1:]
    assert len(job) == 32
    assert sorted(line[3:] for line in rest if line[1:3] == "> ") == ["0", "1", "2"]
    assert "Program execution finished" in rest
    assert f"Job with JobID {job} has finished." in rest
    (runtime,) = [line for line in rest if line.startswith("Job Runtime: ")]
    assert runtime.endswith(" ms")
    assert "after" in rest


@pytest.mark.slow
def test_options_come_from_flags_then_from_the_file(program: Path, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("parallelism.default: 3\n")
    conf = {"PENSTOCK_CONF_DIR": str(tmp_path)}
    assert penstock("run", *LOCAL, str(program), "exit", code=7, **conf)[0].split()[3] == "3"
    assert penstock("run", *LOCAL, "-Dparallelism.default=4", str(program), "exit", code=7, **conf)[0].split()[3] == "4"


def test_a_program_ends_as_it_would_alone(program: Path) -> None:
    """With its own exit code; with 1 and a traceback that begins in the program where it raises."""
    lines = penstock("run", *LOCAL, str(program), "fail", code=1)
    begin = lines.index("Traceback (most recent call last):")
    assert lines[begin + 1] == f'  File "{program}", line 17, in <module>'
    assert "ZeroDivisionError: integer division or modulo by zero" in lines


@pytest.mark.slow
def test_a_detached_program_goes_on_by_itself(program: Path, tmp_path: Path) -> None:
    lines = penstock("run", "-d", *LOCAL, "--log-dir", str(tmp_path / "logs"), str(program))
    assert lines[0].startswith("Job has been submitted with JobID ")
    assert lines[1].startswith("It goes on as process ")
    (log,) = (tmp_path / "logs").iterdir()
    assert str(log) in lines[1]
    found = json.loads("\n".join(penstock("run", "-d", "--json", *LOCAL, "--log-dir", str(tmp_path), str(program))))
    assert len(found["job"]) == 32
    assert found["rest"] is None


def test_a_detached_program_that_begins_no_job_is_an_error_with_its_output(program: Path, tmp_path: Path) -> None:
    lines = penstock("run", "-d", *LOCAL, "--log-dir", str(tmp_path / "logs"), str(program), "exit", code=1)
    assert lines[0].startswith("error: the program ended with 7 before it began a job; its output is in ")
    assert lines[1] == "arguments ['exit'] parallelism 1 __main__"


def test_a_module_runs_from_files_that_are_named(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "counting.py").write_text("import sys, helper\nprint(__name__, helper.NAME, sys.argv[1:])\n")
    (tmp_path / "jobs" / "helper.py").write_text("NAME = 'helped'\n")
    lines = penstock("run", *LOCAL, "-pym", "counting", "-pyfs", str(tmp_path / "jobs"), "a", "b")
    assert lines == ["__main__ helped ['a', 'b']"]


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        (["none.py"], 1, "error: none.py is no file"),
        (["-pyreq", "requirements.txt", "x.py"], 1, "package-env"),
        (["--no-rest", "-D", "rest.port=8081", "x.py"], 1, "--no-rest contradicts rest.port, which -D sets"),
        ([], 2, "Name a program"),
        (["-D", "parallelism.default", "x.py"], 1, "-D takes key=value"),
    ],
)
def test_what_cannot_run_is_said(args: list[str], code: int, told: str) -> None:
    assert told in penstock("run", *args, code=code)[-1]


def test_info_refuses_its_options_behind_the_program(program: Path) -> None:
    """The program would get them, and nothing would be written."""
    told = "\n".join(penstock("info", str(program), "-o", "plan.svg", code=2))
    assert f"penstock info -o FILE {program}" in told.replace("\n", "")
    assert "a job takes no arguments" in "\n".join(penstock("info", "a job", "x", code=2))
    penstock("info", str(program), "--", "exit", code=7)


@pytest.mark.slow
def test_info_shows_a_plan_and_runs_nothing(program: Path, tmp_path: Path) -> None:
    lines = penstock("info", "-p", "2", str(program))
    assert lines[0] == "numbers.py"
    assert lines[1].endswith("Sink: Print  x2")
    assert "Source: Collection Source  x1" in lines[-1]
    assert "after" not in "".join(lines)
    plan = json.loads("\n".join(penstock("info", "--json", str(program))))
    assert len(plan["nodes"]) == 4
    for name, begin in (("plan.svg", "<svg"), ("plan.mmd", "flowchart LR"), ("plan.json", "{")):
        assert penstock("info", "-o", str(tmp_path / name), str(program)) == [f"The plan is in {tmp_path / name}."]
        assert (tmp_path / name).read_text().startswith(begin)
    penstock("info", str(program), "exit", code=7)


RESTORED = """
import os, sys
from penstock.common import WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import DataGeneratorSource
env = StreamExecutionEnvironment.get_execution_environment()
source = DataGeneratorSource(lambda i: i, None, rate_per_second=100)
numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "n").uid("n").key_by(lambda i: i % 3)
numbers.reduce(max).uid(sys.argv[1]).filter(lambda i: False).print().uid("p")
job = env.execute_async("restored")
if len(sys.argv) > 2:
    while not any(vertex.records_in for vertex in job.get_progress().result().vertices):
        pass
    print(job.stop_with_savepoint(False, sys.argv[2]).result())
    job.get_job_execution_result().result()
else:
    job.get_job_execution_result().result()
"""


@pytest.mark.slow
def test_a_detached_program_whose_savepoint_is_refused_is_an_error(tmp_path: Path) -> None:
    """H4: "submitted" and exit 0 would be the opposite of what has happened."""
    program = tmp_path / "restored.py"
    program.write_text(RESTORED)
    lines = penstock("run", *LOCAL, str(program), "sum", str(tmp_path / "savepoints"))
    (path,) = [line for line in lines if "/savepoint-" in line and not line.startswith("Job")]
    detached = ("run", *LOCAL, "-d", "--log-dir", str(tmp_path / "logs"), "-s")
    refused = penstock(*detached, path, str(program), "another", code=1)
    assert not any("submitted" in line for line in refused)
    assert any(line.startswith("error: ") and "no operator of the job claims the state" in line for line in refused)
    missing = penstock(*detached, str(tmp_path / "nothing"), str(program), "sum", code=1)
    assert any("cannot be read" in line for line in missing)
    accepted = penstock(*detached, path, str(program), "sum")
    assert accepted[0].startswith("Job has been submitted with JobID ")
    os.kill(int(accepted[-1].split("process ")[1].split(";")[0]), 15)
