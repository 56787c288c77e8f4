"""What a program says at its end, when it has left something undone. Each test runs one as a script."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BEGIN = """
import sys
from penstock.common import Configuration, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import DataGeneratorSource

def environment():
    return StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict({"execution.target": "local"}))

def numbers(env, count=None):
    source = DataGeneratorSource(lambda i: i) if count is None else DataGeneratorSource(lambda i: i, count)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")

def discard(stream):
    from penstock.connectors.collect import DiscardingSink
    stream.sink_to(DiscardingSink()).name("nothing")
"""


def said(program: str, tmp_path: Path) -> tuple[str, int]:
    """What the script says on stderr, and its exit code."""
    script = tmp_path / "program.py"
    script.write_text(BEGIN + program)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, check=False)
    return done.stderr, done.returncode


def test_a_program_that_never_executes_says_so(tmp_path: Path) -> None:
    """E1: forgetting `execute` is not silent; the sinks that got nothing are named."""
    text, code = said("env = environment(); discard(numbers(env, 3))\n", tmp_path)
    assert "the program ends, but the pipeline to 'nothing' was never executed: call env.execute()" in text
    assert code == 0


def test_a_statement_that_is_explained_or_refused_is_not_left_undone(tmp_path: Path) -> None:
    """E1: the program of streams that planning a statement makes is not the user's."""
    text, code = said(
        """
from penstock.table import EnvironmentSettings, TableEnvironment
table_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
table_env.execute_sql("CREATE TABLE t (a INT) WITH ('connector' = 'blackhole')")
print(table_env.explain_sql("INSERT INTO t VALUES (1)"))
try:
    table_env.execute_sql("INSERT OVERWRITE t VALUES (1)")
except Exception as error:
    print(error)
""",
        tmp_path,
    )
    assert "never executed" not in text
    assert code == 0


def test_an_environment_that_is_gone_at_the_end_counts_too(tmp_path: Path) -> None:
    """E1: most programs make theirs in a function."""
    text, _ = said("def main():\n    discard(numbers(environment(), 3))\nmain()\nimport gc; gc.collect()\n", tmp_path)
    assert "never executed" in text


def test_a_program_that_has_left_nothing_undone_says_nothing(tmp_path: Path) -> None:
    """E1: executed, waited for, cancelled, collected, without sinks, looked at as a plan, or closed."""
    text, code = said(
        """
env = environment(); discard(numbers(env, 3)); env.execute()
env = environment(); discard(numbers(env, 3)); env.execute_async().wait()
env = environment(); discard(numbers(env)); env.execute_async().end()
env = environment(); print(numbers(env, 3).collect())
env = environment(); numbers(env, 3).map(abs)
env = environment(); discard(numbers(env, 3)); print(env.explain())
env = environment(); discard(numbers(env, 3)); env.close()
""",
        tmp_path,
    )
    assert "the program ends" not in text
    assert code == 0


def test_a_forked_process_is_not_the_programs_end(tmp_path: Path) -> None:
    """E1: the one that was forked says nothing, and the program has executed all."""
    text, _ = said(
        "env = environment(); discard(numbers(env, 3))\nimport os\nif not os.fork(): sys.exit(0)\nenv.execute()\n",
        tmp_path,
    )
    assert "the program ends" not in text


def test_a_program_that_fails_says_only_that(tmp_path: Path) -> None:
    """E1: whoever reads a traceback knows why nothing was executed."""
    text, code = said("discard(numbers(environment(), 3))\nraise RuntimeError('earlier')\n", tmp_path)
    assert "the program ends" not in text
    assert "earlier" in text
    assert code == 1


def test_a_job_that_still_runs_is_named(tmp_path: Path) -> None:
    """E1: a job lives in the program that began it; what its end cuts short is said."""
    text, _ = said("env = environment(); discard(numbers(env)); job = env.execute_async('mine')\n", tmp_path)
    assert "the program ends, and with it job 'mine', which is still running: wait for it with job.wait()" in text
