"""What the programs' side of an exchange does with its jobs: `python -m tests.exchange.PROGRAM JOBS RESULTS`."""

from __future__ import annotations

import json
import shutil
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from tests.exchange.cases import BY_NAME, Case, cases_of, shown

_ERROR_CHARS_MAX = 300
#: what a program may raise; polars raises a `BaseException` of its own
FAILURES = (BaseException,)


class Program(ABC):
    """A program that writes and reads files."""

    #: the formats that it writes and reads
    formats: tuple[str, ...]
    #: whether it also writes a directory of each type, for readers that one type keeps from reading all others
    writes_each_alone = False

    @abstractmethod
    def write(self, form: str, path: str, cases: list[Case]) -> None:
        """Writes the rows of these types into a new directory."""

    def probe(self, form: str, path: str, cases: list[Case]) -> None:
        """Raises an error if the rows of these types cannot be written; it may write them to find out."""
        self.write(form, path, cases)

    @abstractmethod
    def read(self, form: str, path: str, cases: list[Case]) -> list[tuple[Any, ...]]:
        """The rows of a directory: `id` and a value of each type."""


def run(program: Program, jobs: dict[str, Any]) -> dict[str, Any]:
    """The results of jobs: for each format and direction the values or the error of each type."""
    results: dict[str, Any] = {"written": {}, "read": []}
    for form, path in jobs["writes"].items():
        if form in program.formats:
            results["written"][form] = _written(program, form, path, [one.name for one in cases_of(form)])
    for job in jobs["reads"]:
        if job["format"] in program.formats:
            found = _read(program, job["format"], job["path"], job["columns"])
            results["read"].append({**job, "found": found})
    return results


def _written(program: Program, form: str, path: str, names: list[str]) -> dict[str, str]:
    """The errors of types that cannot be written. The others are in the directory."""
    errors: dict[str, str] = {}
    cases = [BY_NAME[name] for name in names]
    if program.writes_each_alone:
        for case in list(cases):
            if error := _failure(program, form, f"{path}-{case.name}", [case]):
                errors[case.name] = error
                cases.remove(case)
    first = _failure(program, form, path, cases)
    if first is None:
        return errors
    for case in list(cases):
        if error := _failure(program, form, f"{path}-{case.name}", [case], is_probe=True):
            errors[case.name] = error
            cases.remove(case)
    if cases and (error := _failure(program, form, path, cases)):
        return errors | {case.name: f"together with the others: {error}" for case in cases}
    return errors


def _failure(program: Program, form: str, path: str, cases: list[Case], is_probe: bool = False) -> str | None:
    """The error of writing a directory; None if it is written."""
    shutil.rmtree(path, ignore_errors=True)
    try:
        (program.probe if is_probe else program.write)(form, path, cases)
    except FAILURES as error:
        shutil.rmtree(path, ignore_errors=True)
        return _text(error)
    return None


def _read(program: Program, form: str, path: str, names: list[str]) -> dict[str, Any]:
    cases = [BY_NAME[name] for name in names]
    try:
        return _values(program.read(form, path, cases), cases)
    except FAILURES as error:
        first = error
    found: dict[str, Any] = {}
    for case in cases:
        alone = f"{path}-{case.name}"
        if form == "csv" and not Path(alone).exists():  # columns go by their places
            found[case.name] = {"error": f"one column of the file: {_text(first)}"}
            continue
        try:
            found |= _values(program.read(form, alone if Path(alone).exists() else path, [case]), [case])
        except FAILURES as error:
            found[case.name] = {"error": _text(error)}
    return found


def _values(rows: list[tuple[Any, ...]], cases: list[Case]) -> dict[str, Any]:
    rows = sorted(rows, key=lambda row: int(row[0]))
    return {case.name: [shown(row[place], case) for row in rows] for place, case in enumerate(cases, start=1)}


def _text(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [one.strip() for one in str(error).splitlines() if one.strip()]
    causes = [one for one in lines if one.startswith("Caused by: ")]
    return f"{type(error).__name__}: {(causes or lines or [''])[-1 if causes else 0]}"[:_ERROR_CHARS_MAX]


def main(program: Program) -> None:
    """Runs the jobs of a file."""
    jobs, results = map(Path, sys.argv[1:3])
    results.write_text(json.dumps(run(program, json.loads(jobs.read_text()))))
