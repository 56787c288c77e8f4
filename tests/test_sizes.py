"""Files and functions stay small enough to hold in the head, and few modules pickle."""

from __future__ import annotations

import ast
import statistics
from pathlib import Path

SRC = Path(__file__).parents[1] / "src" / "penstock"
SOURCES = {str(path.relative_to(SRC)): path.read_text() for path in sorted(SRC.rglob("*.py"))}

MEDIAN_LINES_MAX = 112
FUNCTION_LINES_MAX = 70

# Where bytes become objects, and objects bytes. Bytes from others are unpickled in few places, each of which says why
# it may; a module joins this list together with its reason.
PICKLING = {
    "codecs": "cloud column_data pickling row_batches script",
    "connectors": "cached collect",
    "core": "accumulators supersteps",
    "core/batch": "edges exchange figures task",
    "core/epochs": "task",
    "core/task": "program",
    "core/task/channels": "sizes",
    "drivers/client": "iterations superstep_loop",
    "drivers/simulation": "savepoint_checks",
    "drivers/simulation/stepwise": "driver",
    "drivers/spark": "batch_job batch_stage epoch_stage lockstep_peers route_stage worker",
    "drivers/stepwise": "commits exchange sinks",
    "state": "broadcast_state loading shapes snapshot",
    "state/rocksdb": "backend cache canonical classes rewriting rows",
    "state_processor": "history layouts spark_jobs table",
    # Columns of RAW and VARIANT hold Python objects, which only operators of the same job have put there.
    "table/data": "values",
    "testing": "hostile",
    "wire": "errors payload",
}


def test_files_are_short() -> None:
    assert statistics.median(text.count("\n") for text in SOURCES.values()) <= MEDIAN_LINES_MAX


def test_no_function_is_long() -> None:
    lengths = {
        f"{name}: {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for name, text in SOURCES.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: lines for name, lines in lengths.items() if lines > FUNCTION_LINES_MAX} == {}


def imports_pickle(text: str) -> bool:
    for node in ast.walk(ast.parse(text)) if "pickle" in text else ():
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        if any(name.partition(".")[0] in ("pickle", "cloudpickle") for name in names):
            return True
    return False


def test_only_the_modules_in_the_list_pickle() -> None:
    allowed = {f"{folder}/{module}.py" for folder, modules in PICKLING.items() for module in modules.split()}
    assert {name for name, text in SOURCES.items() if imports_pickle(text)} == allowed
