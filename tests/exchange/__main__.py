"""Runs the exchange, and prints the tables of docs/formats.md and what is behind each cell that is no `yes`."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.exchange.cases import BY_NAME, FORMATS, cases_of, expected

ROOT: Final = Path(__file__).parents[2]
OTHERS: Final = {
    "Flink": ("flink", "flink_python"),
    "Spark": ("spark", None),
    "DuckDB": ("in_duckdb", None),
    "polars": ("in_polars", "python"),
    "fastavro": ("in_fastavro", "python"),
}
#: the columns of a table and the text of a cell
Cells = dict[str, dict[str, str]]


def run_program(module: str, interpreter: str, jobs: dict[str, Any], folder: Path, **more: str) -> dict[str, Any]:
    """The results of a program's jobs, which run in a process of its own."""
    given, results = folder / f"{module}-jobs.json", folder / f"{module}-results.json"
    given.write_text(json.dumps(jobs))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TZ": "UTC", **more}
    command = [interpreter, "-m", f"tests.exchange.{module}", str(given), str(results)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
    return json.loads(results.read_text())  # type: ignore[no-any-return]


def jobs_of(folder: Path, name: str, written: dict[str, dict[str, dict[str, str]]]) -> dict[str, Any]:
    """What a program writes, and what it reads of those who have written: their errors, by program and format."""
    reads = [
        {"writer": writer, "format": form, "path": str(folder / writer / form), "columns": columns}
        for writer, of_writer in written.items()
        for form, errors in of_writer.items()
        if (columns := [one.name for one in cases_of(form) if one.name not in errors])
    ]
    return {
        "writes": {form: str(folder / name / form) for form in FORMATS},
        "reads": reads,
    }


def verdict(found: Any, name: str) -> str:
    """What a reader makes of a type: `yes`, an error, or other values."""
    if isinstance(found, dict) and "error" in found:
        return f"error: {found['error']}"
    return "yes" if found == expected(BY_NAME[name]) else f"other values: {found}"


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(prog="python -m tests.exchange")
    parser.add_argument("--flink-python", help="an interpreter with PyFlink")
    parser.add_argument("--flink-jars", default="", help="a directory with the jars of Flink's formats")
    parser.add_argument("--python", help="an interpreter with polars and fastavro")
    parser.add_argument("--only", help="names of programs, with commas between them")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="exchange-"))
    own = run_program("penstock", sys.executable, jobs_of(folder, "Penstock", {}), folder)
    wanted = options.only.split(",") if options.only else list(OTHERS)
    others: dict[str, dict[str, Any]] = {}
    for name, (module, option) in OTHERS.items():
        interpreter = sys.executable if option is None else getattr(options, option)
        if interpreter is None or name not in wanted:
            continue
        jobs = jobs_of(folder, name, {"Penstock": own["written"]})
        others[name] = run_program(module, interpreter, jobs, folder, FLINK_JARS=options.flink_jars)
    written = {name: results["written"] for name, results in others.items()}
    back = run_program("penstock", sys.executable, {**jobs_of(folder, "Penstock", written), "writes": {}}, folder)
    details: list[str] = []
    for form in FORMATS:
        cells = _cells(form, own, others, back, details)
        names = [name for name in others if any(name in row for row in cells.values())]
        if not names:
            continue
        print(f"\n### {form}\n\n| type | {' | '.join(names)} |\n| --- |{' --- |' * len(names)}")
        alike: dict[str, list[str]] = {}
        for case in cases_of(form):
            row = " | ".join(cells[case.name].get(name, "") for name in names)
            alike.setdefault(row, []).append(case.title)
        for row, titles in alike.items():
            print(f"| {', '.join(titles)} | {row} |")
    print("\n" + "\n".join(details))


def _cells(
    form: str, own: dict[str, Any], others: dict[str, dict[str, Any]], back: dict[str, Any], details: list[str]
) -> Cells:
    cells: Cells = {case.name: {} for case in cases_of(form)}
    for name, results in others.items():
        if form not in results["written"]:
            continue
        reads: dict[str, Any] = next((one["found"] for one in results["read"] if one["format"] == form), {})
        ours: dict[str, Any] = next(
            (one["found"] for one in back["read"] if (one["writer"], one["format"]) == (name, form)), {}
        )
        for case in cases_of(form):
            there = own["written"][form].get(case.name)
            there = f"Penstock does not write it: {there}" if there else verdict(reads.get(case.name), case.name)
            here = results["written"][form].get(case.name)
            here = f"{name} does not write it: {here}" if here else verdict(ours.get(case.name), case.name)
            cells[case.name][name] = {
                (True, True): "both",
                (True, False): f"{name} reads",
                (False, True): "Penstock reads",
                (False, False): "-",
            }[there == "yes", here == "yes"]
            for direction, text in ((f"Penstock -> {name}", there), (f"{name} -> Penstock", here)):
                if text != "yes":
                    details.append(f"{form} {case.title}, {direction}: {text}")
    return cells


if __name__ == "__main__":
    main()
