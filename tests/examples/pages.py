"""The programs of the pages: the Python blocks of a page are one script, which runs as it stands.

`PAGES` says where each of them runs, and what it prints. On Spark that is `python page.py`; in one process it is the
same script, and a `sitecustomize` elsewhere sets `execution.target` of every environment to `local`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).parents[2]
#: For pages that run on a laptop in a second, on a machine with other things to do.
TIMEOUT_S = 170
LOCAL = """
from penstock.base.options import EXECUTION_TARGET
from penstock.datastream import StreamExecutionEnvironment as Environment
_made = Environment.__init__
def _make(self, configuration=None):
    _made(self, configuration)
    self.get_configuration().write(EXECUTION_TARGET, "local")
Environment.__init__ = _make
"""
#: Makes each `print` of a program one write, so that the lines of a stream that runs meanwhile do not get between.
WHOLE_LINES = """
import builtins, functools, io, sys

@functools.wraps(builtins.print)
def print_whole(*values, print=builtins.print, file=None, flush=False, **style):
    text = io.StringIO()
    print(*values, file=text, **style)
    (file or sys.stdout).write(text.getvalue())
    (file or sys.stdout).flush()

builtins.print = print_whole
"""
#: The number of a subtask, before what `print()` prints and behind what `print("name")` does.
SUBTASK = re.compile(r"^\d+> |(?<=\w):\d+(?=> )")


@dataclass(frozen=True)
class Page:
    """What the program of a page prints.

    Attributes:
        lines: all lines, in any order; None when they differ from run to run.
        among: lines that are among them.
        left_out: lines that are not looked at.
        targets: where it runs.
        servers: fixtures of servers that it needs; the variable of a server's name in capitals says where one is.
    """

    lines: tuple[str, ...] | None = ()
    among: tuple[str, ...] = ()
    left_out: str = "(?!)"
    targets: tuple[str, ...] = ("local", "spark")
    servers: tuple[str, ...] = ()

    def check(self, printed: list[str]) -> None:
        lines = [SUBTASK.sub("", line) for line in printed if not re.match(self.left_out, SUBTASK.sub("", line))]
        if self.lines is not None:
            assert sorted(lines) == sorted(self.lines), printed
        assert set(self.among) <= set(lines), printed


def blocks_of(page: str) -> list[str]:
    """The Python blocks of a page."""
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def run_page(
    page: str,
    target: str,
    folder: Path,
    python: str = sys.executable,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """Run the program of a page in an empty directory, with more environment variables; the lines that it prints."""
    blocks = blocks_of(page)
    assert blocks
    work = folder / "work"
    work.mkdir()
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYSPARK_PYTHON")}
    environment.update(variables)
    if target == "local":
        (folder / "local").mkdir()
        (folder / "local" / "sitecustomize.py").write_text(LOCAL)
        environment["PYTHONPATH"] = str(folder / "local")
    (work / "page.py").write_text("".join([WHOLE_LINES, *blocks]))
    done = subprocess.run(
        [python, "page.py"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        cwd=work,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def runs_on(target: str) -> list[str]:
    """The pages whose program runs there."""
    return [page for page, told in PAGES.items() if target in told.targets]


PAGES: dict[str, Page] = {
    "README.md": Page(
        (
            "('be', 1)",
            "('be', 2)",
            "('is', 1)",
            "('not', 1)",
            "('or', 1)",
            "('question', 1)",
            "('that', 1)",
            "('the', 1)",
            "('to', 1)",
            "('to', 2)",
        ),
        targets=("local",),
    ),
    "docs/async.md": Page(None),
    "docs/sql.md": Page(),
    "docs/compiled-plans.md": Page(lines=None, among=("+U[tea, 2]", "== Streams =="), targets=("local",)),
    "docs/materialized-tables.md": Page(targets=("local",)),
    "docs/models.md": Page(),
    "docs/process-table-functions.md": Page(),
    "docs/python-functions.md": Page(),
    "docs/tables-and-streams.md": Page(
        ("+I[1970-01-01 00:00:04.999000+00:00, 2]", "+I[1970-01-01 00:00:09.999000+00:00, 1]")
    ),
    "docs/table-connectors.md": Page(),
    "docs/broadcast-state.md": Page(),
    "docs/batch.md": Page(
        None, ("| tea|    1|1.0|", "tea rose by 1.0", "('on', 2)", "('the', 1)", "('and', 1)"), targets=("spark",)
    ),
    # It prints counts until its job is cancelled.
    "docs/checkpoints.md": Page(("3000 results, none lost and none twice",), left_out=r"\(\d, \d+\)"),
    "docs/columns.md": Page(None),
    "docs/coming-from-pyflink.md": Page(("(ann,0,2)", "(ann,10000,1)", "(bob,0,1)")),
    "docs/connectors.md": Page(("(1000, 1000, 'WORD 999')",)),
    "docs/catalogs.md": Page(targets=("local",)),
    "docs/delta.md": Page(targets=("local",)),
    "docs/datastream.md": Page(None, ("+I[north, 5]",)),
    "docs/files.md": Page(),
    "docs/formats.md": Page(),
    "docs/graphs.md": Page(
        (
            "4 4",
            "[('A', 2), ('B', 1), ('C', 1), ('D', 0)]",
            "[('A', 'C'), ('C', 'B')]",
            "[('B', 2.0), ('C', 1.0), ('D', 5.0)]",
            "[('A', 0.0), ('B', 3.0), ('C', 1.0), ('D', 8.0)]",
            "True",
            "1.0",
            "[(1, 1), (2, 1), (3, 1), (4, 1), (7, 7), (8, 7)]",
        ),
        targets=("local",),  # tests/gelly/test_on_spark.py runs graphs on Spark
    ),
    # Minutes on Spark, where tests/gelly runs some algorithms.
    "docs/gelly.md": Page(targets=("local",)),
    "docs/history.md": Page(None, ("2", "4", "6"), targets=("local",)),
    "docs/iceberg.md": Page(("[('c0', 810.0), ('c1', 773.5), ('c2', 796.5)]",), targets=("local",)),
    "docs/logs-and-events.md": Page(None, ("CREATED -> RUNNING", "RUNNING -> FINISHED")),
    "docs/kafka.md": Page(targets=("local",), servers=("kafka",)),
    "docs/iterations.md": Page(
        (
            "[('A', 0), ('B', 3), ('C', 1), ('D', 8)]",
            "[('a', 1.19), ('b', 1.16), ('c', 0.64)]",
            "[3, 5, 7]",
            "{1.414214}",
        ),
        targets=("local",),  # minutes on Spark, where tests/examples/test_examples.py runs loops
    ),
    # Programs and commands: tests/tutorial/test_ten_minutes.py.
    "docs/ten-minutes.md": Page(targets=()),
    # It needs a broker: tests/connectors/kafka/test_sink_page.py.
    "docs/kafka-sink.md": Page(("[('ann', 3), ('ann', 7), ('bob', 2)]",), targets=()),
    # Several programs and servers: tests/cli/trial/test_recipe_page.py.
    "docs/kafka-to-postgresql.md": Page(targets=()),
    "docs/keyed-state.md": Page(),
    "docs/spark-sinks.md": Page(targets=("spark",)),
    "docs/micro-batch.md": Page(("12 counts, each once", "['tea 3', 'tea 7']"), targets=("spark",)),
    "docs/object-stores.md": Page(targets=("local",)),  # in the memory of one process
    "docs/mysql.md": Page(targets=()),  # needs a server: tests/connectors/mysql/test_page.py
    "docs/postgresql.md": Page(targets=()),  # needs a server: tests/connectors/postgres/test_page.py
    # needs a server: tests/connectors/http/test_page.py
    "docs/http.md": Page(("sent",), among=("sent",), targets=(), left_out=r"[+|]|\d+ rows"),
    # needs a server: tests/connectors/prometheus/test_prometheus.py
    "docs/prometheus-sink.md": Page(("written",), targets=()),
    "docs/openlineage.md": Page(
        tuple(
            f"{kind} price [{{'type': 'DIRECT', 'subtype': 'TRANSFORMATION'}}]"
            for kind in ("START", "RUNNING", "COMPLETE")
        ),
        targets=("local",),
    ),
    # a function for a pipeline: tests/cdc/test_page.py
    "docs/cdc-pipelines.md": Page((), targets=()),
    # needs a server: tests/connectors/redis/test_page.py
    "docs/redis.md": Page(("home", "home", "cart", "['cart', 'home', 'home']"), targets=(), left_out=r"[+|]|\d+ rows"),
    # a server: tests/connectors/aws/test_pages.py
    "docs/dynamodb.md": Page(("('home', 3)", "('cart', 8)", "('home', 7)"), targets=(), left_out=r"[+|]|\d+ rows"),
    "docs/sqs.md": Page(("ann: tea", "ann: milk", "bob: rum"), targets=()),
    "docs/kinesis.md": Page(("ann home", "bob home", "ann cart", "+I[eve, home]"), targets=()),
    # needs a server: tests/connectors/clickhouse/test_tables.py
    "docs/clickhouse.md": Page(("written", "['ann']"), targets=(), left_out=r"[+|]|\d+ rows?"),
    # needs a server: tests/connectors/mongodb/test_tables.py
    "docs/mongodb.md": Page(("ann: cart", "bob: home"), targets=(), left_out=r"[+|]|\d+ rows"),
    # need servers: tests/connectors/rabbitmq/test_page.py, and those of mqtt/ and nats/
    "docs/rabbitmq.md": Page(("['milk', 'rum', 'tea']", "[(1, 'tea', None), (2, 'rum', 'seven')]"), targets=()),
    "docs/mqtt.md": Page(
        ("['cups/milk', 'cups/rum', 'cups/tea']", "[('rooms/bar', 21.5), ('rooms/cellar', 4.0)]"), targets=()
    ),
    "docs/nats.md": Page(
        ("['tea', 'milk', 'rum']", "['milk', 'rum', 'tea']", "[(1, 'tea', 4), (2, 'rum', 5)]"), targets=()
    ),
    # needs a server: tests/connectors/opensearch/test_server.py
    "docs/opensearch.md": Page(("written", "['tea']"), targets=(), left_out=r"[+|]|\d+ rows?"),
    "docs/operating.md": Page(
        ("restarts: 0", "went on twice", "refused"), left_out=r"\(\d, \d+\)|\d+ COMPLETED \d+ ms \d+ bytes"
    ),
    "docs/cep.md": Page(
        (
            "guessed> ann guessed",
            "spree> [30, 45]",
            "left behind> ('bob', 'put', 10)",
            "left behind> ('cyd', 'put', 20)",
            "retried> [1, 1]",
            "retried> [1, 1]",
            "payments> bob paid",
            "payments> bob paid",
            "overdue> cyd had until minute 14",
            "overdue> bob had until minute 35",
        ),
        targets=("local",),
    ),
    "docs/process-functions.md": Page(
        ("broken> ann ?", "halved 0 ZeroDivisionError: integer division or modulo by zero")
    ),
    "docs/quickstart.md": Page(
        (
            "[('ann', 2), ('bob', 1), ('ann', 1)]",
            "Penstock Streaming Job: 2 vertices, 1 slots",
            "[0] parallelism 1",
            "    Collection Source (state)",
            "    Timestamps/Watermarks",
            "    Map",
            "[1] parallelism 1",
            "    <- [0] HASH",
            "    Window Reduce (state)",
            "",
            "('ann', 1)",
            "('ann', 2)",
            "('ann', 3)",
            "('bob', 1)",
        )
    ),
    "docs/running.md": Page(
        (
            "option parallelism.default (integer) has value 'many': write a whole number",
            "{'numbers': 2, 'Keyed Reduce -> Print': 3}",
        ),
        left_out=r"\d+$",  # of a stream that is cancelled
    ),
    "docs/savepoints.md": Page(None),
    # Functions under test, without a job.
    "docs/state.md": Page(targets=("local",)),
    "docs/testing-your-functions.md": Page(
        (
            "test_a_total_comes_after_a_minute passed",
            "test_a_whole_program passed",
            "test_totals_in_every_hostile_way passed",
            "test_totals_survive_a_failure_and_another_parallelism passed",
            "test_what_is_kept_in_self_is_found_out passed",
            "test_totals_survive_faults passed",
            "test_why_there_is_no_match passed",
        ),
        targets=("local",),
    ),
    "docs/time.md": Page(left_out=r"\d+$"),  # of a stream that is stopped
    "docs/windows.md": Page(
        (
            "tumbling> ('ann', 0, ['/', '/shop'])",
            "tumbling> ('ann', 10, ['/buy'])",
            "tumbling> ('bob', 0, ['/'])",
            "tumbling> ('bob', 30, ['/'])",
            "so far> (10, 3)",
            "so far> (20, 4)",
            "so far> (30, 4)",
            "so far> (40, 5)",
            "session> ('ann', 1, ['/', '/shop', '/buy'])",
            "session> ('bob', 2, ['/'])",
            "session> ('bob', 31, ['/'])",
            "pair> ('ann', 0)",
            "pair> ('bob', 0)",
            "spent> ('ann', 2)",
            "last two> ('ann', '/')",
            "last two> ('ann', '/ then /shop')",
            "last two> ('ann', '/shop then /buy')",
            "last two> ('bob', '/')",
            "last two> ('bob', '/ then /')",
            "in time> ('ann', 0, ['/'])",
            "in time> ('ann', 50, ['/'])",
            "late> ('ann', '/late', 2000)",
            "nr> ('ann', 0, 1, 1)",
            "nr> ('ann', 0, 2, 2)",
            "nr> ('ann', 0, 3, 3)",
            "nr> ('bob', 0, 1, 1)",
            "nr> ('bob', 30, 2, 1)",
        )
    ),
}
