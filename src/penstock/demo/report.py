"""The table at the end of the demo, with both answers side by side."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

from penstock.demo.answers import Answer, by_carrier, by_origin

DIFFERENCES_SHOWN_MAX = 20
_HOURS_SHOWN = 4


def print_comparison(console: Console, ours: Answer, theirs: Answer, checked_by: str, mismatches: list[str]) -> None:
    """Print the table and the verdict.

    Args:
        console: the console to print to.
        ours: the job's output.
        theirs: the answer of the check.
        checked_by: the name of the check.
        mismatches: the differences.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    table.add_column("Penstock", justify="right")
    table.add_column(checked_by, justify="right")
    table.add_column("")
    _add(table, "departures, mean delay", _named(by_origin(ours)), _named(by_origin(theirs)))
    _add(table, "worst hours", *_worst_hours(ours, theirs))
    worst, check = by_carrier(ours), by_carrier(theirs)
    minutes = {carrier: f"{delay:,} min" for carrier, delay in worst.items()}
    _add(table, "worst delay of the year", minutes, {carrier: f"{delay:,} min" for carrier, delay in check.items()})
    table.add_row("rows compared", "", "", "")
    _add_row(table, "hours at an airport", f"{len(ours.hourly):,}", f"{len(theirs.hourly):,}")
    _add_row(table, "days of a carrier", f"{len(ours.worst):,}", f"{len(theirs.worst):,}")
    console.print(table)
    if not mismatches:
        rows = len(ours.hourly) + len(ours.worst)
        console.print(f"[bold green]equal[/]: all {rows:,} rows are the same")
        return
    console.print(f"[bold red]different[/]: {len(mismatches):,} rows are not the same")
    for line in mismatches[:DIFFERENCES_SHOWN_MAX]:
        console.print(f"  {line}", markup=False, soft_wrap=True)
    if len(mismatches) > DIFFERENCES_SHOWN_MAX:
        console.print(f"  and {len(mismatches) - DIFFERENCES_SHOWN_MAX:,} more")


def _named(totals: dict[str, tuple[int, int]]) -> dict[str, str]:
    return {origin: _count_and_mean(total) for origin, total in totals.items()}


def _count_and_mean(total: tuple[int, int] | None) -> str:
    if total is None:
        return "nothing"
    departures, delay_minutes = total
    return f"{departures:,}, {delay_minutes / departures:.1f} min"


def _worst_hours(ours: Answer, theirs: Answer) -> tuple[dict[str, str], dict[str, str]]:
    """Return the hours with the most total delay, according to the check."""
    keys = sorted(theirs.hourly, key=lambda key: (-theirs.hourly[key][1], key))[:_HOURS_SHOWN]
    names = [f"{origin} {hour[:10]} {hour[11:16]} UTC" for origin, hour in keys]
    sides = ([_count_and_mean(side.hourly.get(key)) for key in keys] for side in (ours, theirs))
    left, right = (dict(zip(names, texts, strict=True)) for texts in sides)
    return left, right


def _add(table: Table, title: str, ours: dict[str, str], theirs: dict[str, str]) -> None:
    table.add_row(f"[bold]{title}[/]", "", "", "")
    for name in sorted({*ours, *theirs}):
        _add_row(table, name, ours.get(name, "nothing"), theirs.get(name, "nothing"))
    table.add_section()


def _add_row(table: Table, name: str, ours: str, theirs: str) -> None:
    table.add_row(f"  {name}", ours, theirs, "[green]=[/]" if ours == theirs else "[bold red]differs[/]")
