"""Statements of a text: semicolons tell them apart, but not those inside of something."""

import pytest

from penstock.cli.sql_shell.statements import Statement, is_complete, scan, split


def texts(script: str) -> list[str]:
    return [one.text for one in split(script)]


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("SELECT 1; SELECT 2;", ["SELECT 1", "SELECT 2"]),
        ("SELECT 1", ["SELECT 1"]),
        (";; SELECT 1;;", ["SELECT 1"]),
        ("SELECT ';'; SELECT `a;``b`", ["SELECT ';'", "SELECT `a;``b`"]),
        ("SELECT 'it''s;'; SELECT 2", ["SELECT 'it''s;'", "SELECT 2"]),
        ("-- one; two\nSELECT 1 -- three;\n; /* ; */ SELECT 2", ["SELECT 1", "SELECT 2"]),
        ("SELECT /*+ STATE_TTL('a' = '1;d') */ 1; SELECT 2", ["SELECT /*+ STATE_TTL('a' = '1;d') */ 1", "SELECT 2"]),
        ("BEGIN STATEMENT SET; INSERT INTO a SELECT 1; END;", ["BEGIN STATEMENT SET", "INSERT INTO a SELECT 1", "END"]),
        ("-- nothing\n", []),
    ],
)
def test_statements_of_a_text(script: str, found: list[str]) -> None:
    assert texts(script) == found


@pytest.mark.parametrize("first", ["EXECUTE STATEMENT SET", "explain statement set", "EXPLAIN JSON STATEMENT SET"])
def test_a_statement_set_is_one_statement(first: str) -> None:
    """An END of CASE, also right before a semicolon, is not that of the set."""
    whole = f"{first} BEGIN INSERT INTO a SELECT CASE WHEN x THEN 1 END; INSERT INTO b SELECT 1; END"
    assert texts(f"{whole}; SELECT 1;") == [whole, "SELECT 1"]


def test_a_statement_knows_where_it_begins() -> None:
    assert split("-- a\n  SELECT 1; SELECT\n2") == [
        Statement("SELECT 1", 2, 3, True),
        Statement("SELECT\n2", 2, 13, False),
    ]


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", True),
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT 1; -- done", True),
        ("SELECT 1; SELECT", False),
        ("SELECT ';", False),
        ("SELECT 1; /* not yet", False),
        ("EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1;", False),
        ("EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; END;", True),
        ("quit", True),
        ("help ", True),
        ("quitt", False),
    ],
)
def test_whether_something_has_to_follow(text: str, complete: bool) -> None:
    assert is_complete(text) is complete


@pytest.mark.parametrize("text", ["SELECT 'a", "`b", "/* c", "/*+ d", 'a " ; \\ é §', "1e5.x", "''''", "/*/"])
def test_pieces_are_the_whole_text(text: str) -> None:
    """Whatever is typed, nothing is lost and nothing fails."""
    assert "".join(piece.text for piece in scan(text)) == text
