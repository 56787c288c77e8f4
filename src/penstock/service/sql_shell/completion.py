"""What may come next at a place in a text: tables where tables are read, columns of these, keys of options, words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from penstock.service.sql_shell.scanning import Kind, Piece, scan
from penstock.table.sql.words import RESERVED

#: words behind which a table comes
_BEFORE_TABLES: Final = frozenset({"FROM", "JOIN", "INTO", "OVERWRITE", "TABLE", "VIEW", "DESCRIBE", "DESC"})
_OPTIONS: Final = frozenset({"SET", "RESET"})
#: words of statements that are no reserved ones
_MORE_WORDS: Final = (
    "ADD CATALOG CATALOGS CLEAR COLUMNS COMMENT CONNECTOR DATABASE DATABASES DESC DROP EXIT FUNCTIONS HELP HOP IF JOB "
    "JOBS KEY MODULES OPTIONS PARTITIONED QUIT RENAME SAVEPOINT SESSION STATEMENT STOP TABLES TEMPORARY TUMBLE "
    "CUMULATE DESCRIPTOR VIEW VIEWS WATERMARK"
)
_PLAIN: Final = re.compile(r"[^\W\d]\w*")
WORDS: Final = tuple(sorted({*RESERVED, *_MORE_WORDS.split()}))


class Names(Protocol):
    """What a session knows by name. None of it raises."""

    def catalogs(self) -> Sequence[str]:
        """All catalogs."""

    def databases(self, catalog: str | None = None) -> Sequence[str]:
        """The databases of a catalog; without one, of the current one."""

    def tables(self, path: Sequence[str] = ()) -> Sequence[str]:
        """Tables and views of a database; without one, of the current one."""

    def columns(self, path: Sequence[str]) -> Sequence[str]:
        """The columns of a table."""

    def functions(self) -> Sequence[str]:
        """All functions."""

    def options(self) -> Sequence[str]:
        """The keys of all options."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Texts that may take the place of the last `length` characters."""

    texts: Sequence[str]
    length: int = 0


def candidates(before: str, after: str, names: Names) -> Candidates:
    """What may come between two parts of a statement.

    Args:
        before: the statement up to the place.
        after: what follows the place.
        names: what the session knows.
    """
    every = list(scan(before))
    if every and every[-1].kind is Kind.COMMENT and (every[-1].text[:2] != "/*" or not every[-1].is_closed):
        return Candidates(())
    pieces = [piece for piece in every if not piece.is_blank]
    last = pieces[-1] if pieces else None
    if last is not None and last.kind is Kind.TEXT and not last.is_closed:
        is_key = pieces[0].text.upper() in _OPTIONS and len(pieces) == 2
        return _fitting(names.options() if is_key else (), last.text[1:])
    if last is not None and not last.is_closed and last.kind is not Kind.QUOTED:
        return Candidates(())
    word = ""
    if last is not None and last.end == len(before) and last.kind in (Kind.WORD, Kind.QUOTED):
        word = last.text
        pieces.pop()
    parents = _parents(pieces)
    previous = pieces[-1].text.upper() if pieces else ""
    tables = _tables_in([piece for piece in scan(before + after) if not piece.is_blank])
    found = _names(parents, previous, pieces, tables, names)
    return _fitting(dict.fromkeys(found), word)


def _names(
    parents: Sequence[str],
    previous: str,
    pieces: Sequence[Piece],
    tables: Mapping[str, Sequence[str]],
    names: Names,
) -> Iterable[str]:
    if parents:
        known = names.columns(tables[parents[-1]]) if parents[-1] in tables and len(parents) == 1 else ()
        of_catalog = names.databases(parents[0]) if len(parents) == 1 else ()
        return _written(known or (*of_catalog, *names.tables(parents)))
    if previous == "USE":
        return (*_written(names.databases()), "CATALOG", "MODULES")
    if previous == "CATALOG":
        return _written(names.catalogs())
    if previous in _BEFORE_TABLES:
        return _written((*names.tables(), *names.catalogs(), *names.databases()))
    if not pieces:
        return WORDS
    columns = [column for path in dict.fromkeys(map(tuple, tables.values())) for column in names.columns(path)]
    return (*_written((*columns, *tables)), *WORDS, *names.functions())


def _written(names: Iterable[str]) -> list[str]:
    """Names as statements have them: in backticks where they would be no names otherwise."""
    return [name if _PLAIN.fullmatch(name) and name.upper() not in RESERVED else _in_backticks(name) for name in names]


def _in_backticks(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _parents(pieces: list[Piece]) -> list[str]:
    """The names before the dots before the place; they are taken off the pieces."""
    found: list[str] = []
    while len(pieces) > 1 and pieces[-1].text == "." and pieces[-2].kind in (Kind.WORD, Kind.QUOTED):
        found.insert(0, _name(pieces[-2]))
        del pieces[-2:]
    return found


def _tables_in(pieces: Sequence[Piece]) -> dict[str, Sequence[str]]:
    """The tables that a statement reads or writes: by their names or aliases, their paths."""
    found: dict[str, Sequence[str]] = {}
    for index, piece in enumerate(pieces):
        if piece.kind is not Kind.WORD or piece.text.upper() not in _BEFORE_TABLES:
            continue
        path, rest = _path(pieces[index + 1 :])
        if not path:
            continue
        if rest and rest[0].text.upper() == "AS":
            rest = rest[1:]
        is_alias = bool(rest) and rest[0].kind in (Kind.WORD, Kind.QUOTED) and rest[0].text.upper() not in WORDS
        found[_name(rest[0]) if is_alias else path[-1]] = path
    return found


def _path(pieces: Sequence[Piece]) -> tuple[list[str], Sequence[Piece]]:
    path: list[str] = []
    while pieces and pieces[0].kind in (Kind.WORD, Kind.QUOTED) and pieces[0].text.upper() not in RESERVED:
        path.append(_name(pieces[0]))
        if len(pieces) < 2 or pieces[1].text != ".":
            return path, pieces[1:]
        pieces = pieces[2:]
    return path, pieces


def _name(piece: Piece) -> str:
    return piece.text.strip("`").replace("``", "`") if piece.kind is Kind.QUOTED else piece.text


def _fitting(found: Iterable[str], word: str) -> Candidates:
    return Candidates(list(_that_begin_with(found, word)), len(word))


def _that_begin_with(found: Iterable[str], word: str) -> Iterator[str]:
    """Those that begin with a word; words of SQL as they are written, in small letters or in capitals."""
    begin = word.lstrip("`").lower()
    for one in found:
        if not one.lstrip("`").lower().startswith(begin) or one == word:
            continue
        if word.startswith("`"):
            yield one if one.startswith("`") else _in_backticks(one)
        else:
            yield one.lower() if one.isupper() and begin and word.islower() else one
