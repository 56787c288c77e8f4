"""The table that a changelog stands for."""

import io

from rich.console import Console

from penstock.cli.sql_shell.display import MaterializedTable, drawing, show_live


def make_table(*changes: tuple[str, str], rows_max: int = 100) -> MaterializedTable:
    table = MaterializedTable(rows_max)
    for kind, row in changes:
        table.apply(kind, row.split())
    return table


def test_updates_and_deletions_take_rows_away() -> None:
    table = make_table(("+I", "a 1"), ("+I", "b 1"), ("-U", "a 1"), ("+U", "a 2"), ("-D", "b 1"))
    assert table.rows() == [("a", "2")]
    assert len(table) == 1
    assert table.changes == 5


def test_a_row_is_there_as_often_as_it_came() -> None:
    assert make_table(("+I", "a"), ("+I", "a"), ("+I", "b"), ("-D", "a")).rows() == [("b",), ("a",)]


def test_a_row_may_go_before_it_comes() -> None:
    table = make_table(("-U", "a 1"))
    assert (table.rows(), len(table)) == ([], 0)
    table.apply("+I", ["a", "1"])
    assert (table.rows(), len(table)) == ([], 0)


def test_the_oldest_rows_go_when_there_are_too_many() -> None:
    table = make_table(*(("+I", str(number)) for number in range(5)), rows_max=3)
    assert table.rows() == [("2",), ("3",), ("4",)]
    assert len(table) == 3


def test_the_last_rows_are_those_that_changed_last() -> None:
    assert make_table(("+I", "a"), ("+I", "b"), ("+I", "c")).rows(2) == [("b",), ("c",)]


def drawn(table: MaterializedTable, rows_max: int, is_running: bool) -> str:
    console = Console(file=io.StringIO(), width=80)
    with console.capture() as capture:
        console.print(drawing(table, ["name", "total"], 30, rows_max, is_running))
    return capture.get()


def test_a_drawing_has_the_rows_that_fit() -> None:
    table = make_table(("+I", "ann 1"), ("+I", "ben 2"), ("+I", "[b]cleo 3"))
    text = drawn(table, 2, True)
    assert "ann" not in text
    assert "ben" in text
    assert "[b]cleo" in text  # no mark-up
    assert "3 rows after 3 changes; the last 2 are shown. Ctrl-C ends the query." in text
    assert drawn(table, 3, False).endswith("3 rows after 3 changes.\n")


def test_what_is_on_the_screen_at_the_end_is_the_whole_table() -> None:
    out = io.StringIO()
    console = Console(file=out, width=80, height=24)
    table = MaterializedTable(10)
    show_live(table, [("+I", ["ann"]), ("-U", ["ann"]), ("+U", ["ben"])], ["name"], 30, console)
    assert "ben" in out.getvalue()
    assert "ann" not in out.getvalue().partition("ben")[2]
    assert "1 row after 3 changes." in out.getvalue()
