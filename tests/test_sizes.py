"""Files and functions stay small enough to hold in the head, and few modules pickle."""

from __future__ import annotations

import ast
from pathlib import Path

SRC = Path(__file__).parents[1] / "src" / "penstock"
SOURCES = {str(path.relative_to(SRC)): path.read_text() for path in sorted(SRC.rglob("*.py"))}

FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 70
# Loops over the events of a batch, in which a call for each event costs more than a reader gains.
LOOPS = {"runtime/patterns/matcher.py: run"}

# Where bytes become objects, and objects bytes. Bytes from others are unpickled in few places, each of which says why
# it may; a module joins this list together with its reason.
PICKLING = {
    "codecs": "cloud column_data pickling",
    "connectors": "cached collect",
    "drivers/client": "iterations",
    "drivers/simulation": "oracle stepwise_driver",
    "drivers/spark": "batch_job batch_stage epoch_stage lockstep route_stage worker",
    "drivers/stepwise": "flow",
    "runtime": "accumulators supersteps",
    "runtime/batch": "exchange task",
    "runtime/epochs": "task",
    "runtime/task": "operator_chain",
    "runtime/task/channels": "result_partition",
    # Columns of RAW and VARIANT hold Python objects, which only operators of the same job have put there.
    # Rows on their way to another task carry the names and types of their columns.
    "sql/data": "arrow row_data",
    "state": "loading operator_state snapshot",
    "state/rocksdb": "backend cache canonical store",
    "state_processor": "layouts table",
    "testing": "hostile",
    "wire": "buffers",
}


def test_no_file_is_long() -> None:
    lengths = {name: text.count("\n") for name, text in SOURCES.items()}
    assert {name: lines for name, lines in lengths.items() if lines > FILE_LINES_MAX} == {}


def test_no_function_is_long() -> None:
    lengths = {
        f"{name}: {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for name, text in SOURCES.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name for name, lines in lengths.items() if lines > FUNCTION_LINES_MAX} == LOOPS


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
