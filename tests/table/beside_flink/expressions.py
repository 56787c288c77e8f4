"""Random expressions on Penstock and on a real Flink: `python -m tests.table.beside_flink.expressions --cases 1000`.

Flink's jars are those of `--jars`, or of the environment variable `FLINK_JARS`. Each expression whose value (as text)
or type differs is printed, and each that one side alone takes. Left out are answers of Flink that are faults of its
own: code that it makes and cannot compile, assertions, NULL where it has promised a value.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path
from random import Random, SystemRandom

import click
from tests.table.beside_flink.flink import Flink
from tests.table.beside_flink.random_expressions import expression
from tests.table.functions import Row, results, session_of, typed_sql

from penstock.base.errors import PenstockError
from penstock.sql.parser import SqlParserError

#: How many expressions are one query of Flink.
AT_ONCE = 25
#: Names of errors that say that Flink has made a mistake.
FAULTS = "CodeGen|Compile|Match(Error)|Assertion|NullPointer|Enforcer|Linkage|ClassCast|IndexOutOf|Unsupported"


def ours(text: str, zone: str) -> list[str | None]:
    """As `Expressions.java` answers."""
    row, session = Row([], [], [], zone=zone), session_of(zone)
    try:
        return ["value", *results(typed_sql(f"CAST(({text}) AS STRING), TYPEOF({text})", row, session), row, session)]
    except (PenstockError, SqlParserError) as error:
        return ["refused", str(error).partition("\n")[0]]


def difference(mine: list[str | None], flinks: list[str | None]) -> str:
    """What kind of difference there is, or nothing."""
    if flinks[0] != "value" and re.search(FAULTS, str(flinks[1])):
        return ""
    if mine[0] == "value" == flinks[0]:
        if mine[1] != flinks[1]:
            return "value"
        return "" if _without_digits(str(mine[2])) == _without_digits(str(flinks[2])) else "type"
    if mine[0] == "value":
        return "" if "No match found for function" in str(flinks[1]) else "taken here alone"
    return "taken by Flink alone" if flinks[0] == "value" else ""


def _without_digits(kind: str) -> str:
    """TYPEOF shows intervals as the planner keeps them, which differs."""
    return re.sub(r"INTERVAL [A-Z]+(\(\d\))?( TO [A-Z]+(\(\d\))?)?", "INTERVAL", kind)


@click.command()
@click.option("--jars", type=click.Path(exists=True, path_type=Path), default=os.environ.get("FLINK_JARS"))
@click.option("--cases", default=1000, help="How many expressions.")
@click.option("--seed", type=int, help="Makes the same expressions again; by default another one in each run.")
@click.option("--zone", default="UTC", help="The session's time zone.")
def main(jars: Path | None, cases: int, seed: int | None, zone: str) -> None:
    """Compare answers with those of Flink."""
    if jars is None:
        raise click.UsageError("say with --jars, or FLINK_JARS, where Flink's jars are")
    seed = SystemRandom().randrange(1 << 32) if seed is None else seed
    print(f"seed {seed}", flush=True)
    random, kinds = Random(seed), Counter[str]()
    with Flink(jars, "Expressions", zone) as flink:
        for _ in range(0, cases, AT_ONCE):
            texts = [expression(random) for _ in range(AT_ONCE)]
            for text, answer in zip(texts, flink.answer(texts), strict=True):
                found = ours(text, zone)
                kind = difference(found, answer)
                kinds[kind] += 1
                if kind:
                    print(f"{kind}: {text}\n  Flink:    {answer[1:]}\n  Penstock: {found[1:]}", flush=True)
    print(f"{kinds.pop('', 0)} alike, {dict(kinds)}")


if __name__ == "__main__":
    main()
