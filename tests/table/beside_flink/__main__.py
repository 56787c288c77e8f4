"""SQL programs on Penstock and on a real Flink: `python -m tests.table.beside_flink FILE [--only TEXT] [--explain]`.

FILE is JSON: programs as `tests.table.programs` reads them, or in the simpler form of `cases.full`. Flink's jars are
those of `--jars`, or of the environment variable `FLINK_JARS`. Each program whose changes differ is printed, with what
Flink gives alone and what Penstock gives alone; `table` says that the changes stand for another table, too. Rows of
several tables come in turns, in one order on both sides.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from tests.table.beside_flink.cases import for_flink, full, turns_of
from tests.table.beside_flink.flink import Flink
from tests.table.beside_flink.turns import TurnsSource
from tests.table.program_tables import fold_changes
from tests.table.programs import NotApplicableError, Program

from penstock.base.errors import PenstockError
from penstock.connectors.collection import ColumnsSource
from penstock.sql.logical import nodes as logical
from penstock.sql.parser import SqlParserError
from penstock.sql.tables.tables import TableReader


class InTurns(Program):
    """A program whose sources read in turns."""

    def __init__(self, case: dict[str, Any]) -> None:
        super().__init__(case, restores=False)
        self._turns = turns_of(case)

    def _reader(self, scan: logical.Scan, with_after: bool, waits: bool) -> TableReader:
        reader = super()._reader(scan, with_after, waits)
        assert isinstance(reader.source, ColumnsSource)
        mine = self._turns.of.get(scan.path[-1], [])
        return replace(reader, source=TurnsSource(reader.source, self._turns, mine))

    def rows(self) -> dict[str, list[str]]:
        """What arrives at each sink."""
        session = self.session()
        steps = [step["sql"] for step in self.case["run"] if "sql" in step]
        inserts = [one for step in steps for one in self._inserts_of_text(step, session)]
        job, rows = self._start(inserts, session, True, False, None)
        job.wait()
        return rows


def ours(case: dict[str, Any]) -> tuple[dict[str, list[str]], str]:
    """What Penstock gives: rows by sink, and what went wrong."""
    try:
        return InTurns(case).rows(), ""
    except (PenstockError, SqlParserError, NotApplicableError, Exception) as error:  # noqa: BLE001 - it is shown
        return {}, f"{type(error).__name__}: {error}"


def difference(case: dict[str, Any], flinks: dict[str, Any], found: dict[str, list[str]], error: str) -> str:
    """How answers differ, or nothing."""
    if flinks.get("error") or error:
        if flinks.get("error") and error:
            return ""
        return f"  Flink refuses: {_brief(flinks['error'])}" if flinks.get("error") else f"  Penstock refuses: {error}"
    lines = []
    for sink in case["sinks"]:
        theirs, mine = flinks["sinks"].get(sink["name"], []), found.get(sink["name"], [])
        if Counter(theirs) == Counter(mine):
            continue
        kind = "changes" if fold_changes(sink, theirs) == fold_changes(sink, mine) else "table"
        lines.append(f"  {kind} of {sink['name']}\n    Flink:    {theirs}\n    Penstock: {mine}")
    return "\n".join(lines)


def _brief(error: str) -> str:
    """The last reason that says something."""
    return re.sub(r"\s+", " ", error)[-300:] if error else ""


@click.command()
@click.argument("files", type=click.Path(exists=True, path_type=Path), nargs=-1)
@click.option("--jars", type=click.Path(exists=True, path_type=Path), default=os.environ.get("FLINK_JARS"))
@click.option("--only", default="", help="Only programs whose id contains this.")
@click.option("--explain", is_flag=True, help="Print Flink's plans.")
@click.option("--refused", is_flag=True, help="Print why programs are refused by both.")
def main(files: tuple[Path, ...], jars: Path | None, only: str, explain: bool, refused: bool) -> None:
    """Compare answers with those of Flink."""
    if jars is None:
        raise click.UsageError("say with --jars, or FLINK_JARS, where Flink's jars are")
    cases = [case for file in files for case in json.loads(file.read_text()) if only in case["uid"]]
    alike = 0
    with Flink(jars) as flink:
        for case in map(full, cases):
            if explain:
                answer = flink.answer(for_flink(case, True))
                print(case["uid"], *answer.get("plans", ()), answer.get("error", ""), sep="\n")
            answer = flink.answer(for_flink(case, False))
            found, error = ours(case)
            wrong = difference(case, answer, found, error)
            alike += not wrong
            if wrong:
                print(f"{case['uid']}  {' ; '.join(step.get('sql', '') for step in case['run'])}\n{wrong}", flush=True)
            elif refused and error:
                print(f"{case['uid']} is refused\n  Flink: {_brief(answer['error'])}\n  Penstock: {error}", flush=True)
    print(f"{alike} of {len(cases)} programs give what Flink gives")


if __name__ == "__main__":
    main()
