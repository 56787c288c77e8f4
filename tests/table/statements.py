"""Which statements the parser takes, beside Flink's answers: `python -m tests.table.statements FILE`.

FILE is JSON: a list of `sql`, `parses` (whether Flink's parser takes it) and `kind` (what Calcite calls it). Each
statement that is answered otherwise is printed, with `--only` those alone whose text contains something.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import click

from penstock.sql.parser import SqlParserError, parse_script


class Answer(NamedTuple):
    """What the parser makes of a statement; `error` where it takes it not."""

    kind: str | None
    error: str = ""


def answer_to(sql: str) -> Answer:
    """Parse it; of several statements, as Flink's parser takes them, the first one says the kind."""
    try:
        found = parse_script(sql)
    except SqlParserError as error:
        return Answer(None, str(error))
    return Answer(found[0].kind) if found else Answer(None, "there is no statement")


@click.command()
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@click.option("--only", default="", help="Only statements that contain this.")
@click.option("--quiet", is_flag=True, help="Print the sum alone.")
def main(file: Path, only: str, quiet: bool) -> None:
    """Compare answers."""
    cases = [case for case in json.loads(file.read_text()) if only in case["sql"]]
    right = kinds = 0
    for case in cases:
        found = answer_to(case["sql"])
        if (found.kind is not None) is case["parses"]:
            right += 1
            kinds += found.kind == case["kind"]
            if found.kind != case["kind"] and not quiet:
                print(f"kind {found.kind}, not {case['kind']}: {case['sql'][:200]!r}")
        elif not quiet:
            print(f"{'refused: ' + found.error if case['parses'] else 'taken'}: {case['sql'][:300]!r}")
    print(f"{right} of {len(cases)} are taken or refused as Flink does, {kinds} of them with the same kind")


if __name__ == "__main__":
    main()
