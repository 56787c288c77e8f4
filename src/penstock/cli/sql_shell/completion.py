"""Completion candidates at a position in a text: tables where tables are read, columns, option keys, SQL words.

The names that a session knows, for completion. Names that cannot be looked up are not offered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from penstock.base.errors import PenstockError
from penstock.base.options import REGISTRY
from penstock.cli.sql_shell.display import OPTIONS
from penstock.cli.sql_shell.statements import Kind, Piece, scan
from penstock.sql.parser.lexer import RESERVED
from penstock.sql.parser.unparse import format_path
from penstock.sql.session.config import DML_SYNC, LOCAL_TIME_ZONE, MAX_COLUMN_WIDTH, STATE_TTL_MS
from penstock.table import TableEnvironment

#: words that precede a table
_BEFORE_TABLES: Final = frozenset({"FROM", "JOIN", "INTO", "OVERWRITE", "TABLE", "VIEW", "DESCRIBE", "DESC"})
_OPTIONS: Final = frozenset({"SET", "RESET"})
#: words of statements that are not reserved
_MORE_WORDS: Final = (
    "ADD CATALOG CATALOGS CLEAR COLUMNS COMMENT CONNECTOR DATABASE DATABASES DESC DROP EXIT FUNCTIONS HELP HOP IF JOB "
    "JOBS KEY MODULES OPTIONS PARTITIONED QUIT RENAME SAVEPOINT SESSION STATEMENT STOP TABLES TEMPORARY TUMBLE "
    "CUMULATE DESCRIPTOR VIEW VIEWS WATERMARK"
)
_PLAIN: Final = re.compile(r"[^\W\d]\w*")
WORDS: Final = tuple(sorted({*RESERVED, *_MORE_WORDS.split()}))


class Names(Protocol):
    """The names that a session knows. Its methods do not raise."""

    def catalogs(self) -> Sequence[str]:
        """Return all catalogs."""

    def databases(self, catalog: str | None = None) -> Sequence[str]:
        """Return the databases of a catalog, by default of the current one."""

    def tables(self, path: Sequence[str] = ()) -> Sequence[str]:
        """Return the tables and views of a database, by default of the current one."""

    def columns(self, path: Sequence[str]) -> Sequence[str]:
        """Return the columns of a table."""

    def functions(self) -> Sequence[str]:
        """Return all functions."""

    def options(self) -> Sequence[str]:
        """Return the keys of all options."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Texts that may replace the last `length` characters."""

    texts: Sequence[str]
    length: int = 0


def candidates(before: str, after: str, names: Names) -> Candidates:
    """Return the candidates for the place between two parts of a statement.

    Args:
        before: the statement up to the place.
        after: the text after the place.
        names: the names that the session knows.
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
    tables = _find_tables([piece for piece in scan(before + after) if not piece.is_blank])
    candidate_names = _names(parents, previous, pieces, tables, names)
    return _fitting(dict.fromkeys(candidate_names), word)


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
    """Return names as statements spell them, in backticks if necessary."""
    return [name if _PLAIN.fullmatch(name) and name.upper() not in RESERVED else _in_backticks(name) for name in names]


def _in_backticks(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _parents(pieces: list[Piece]) -> list[str]:
    """Return the names before the dots at the end of the tokens, and remove both from the tokens."""
    parents: list[str] = []
    while len(pieces) > 1 and pieces[-1].text == "." and pieces[-2].kind in (Kind.WORD, Kind.QUOTED):
        parents.insert(0, _name(pieces[-2]))
        del pieces[-2:]
    return parents


def _find_tables(pieces: Sequence[Piece]) -> dict[str, Sequence[str]]:
    """Return the paths of the tables that a statement reads or writes, by name or alias."""
    tables: dict[str, Sequence[str]] = {}
    for index, piece in enumerate(pieces):
        if piece.kind is not Kind.WORD or piece.text.upper() not in _BEFORE_TABLES:
            continue
        path, rest = _path(pieces[index + 1 :])
        if not path:
            continue
        if rest and rest[0].text.upper() == "AS":
            rest = rest[1:]
        is_alias = bool(rest) and rest[0].kind in (Kind.WORD, Kind.QUOTED) and rest[0].text.upper() not in WORDS
        tables[_name(rest[0]) if is_alias else path[-1]] = path
    return tables


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


def _fitting(candidate_names: Iterable[str], word: str) -> Candidates:
    return Candidates(list(_filter_by_prefix(candidate_names, word)), len(word))


def _filter_by_prefix(candidate_names: Iterable[str], word: str) -> Iterator[str]:
    """Yield the candidates that begin with a word. SQL words follow the word's case."""
    begin = word.lstrip("`").lower()
    for name in candidate_names:
        if not name.lstrip("`").lower().startswith(begin) or name == word:
            continue
        if word.startswith("`"):
            yield name if name.startswith("`") else _in_backticks(name)
        else:
            yield name.lower() if name.isupper() and begin and word.islower() else name


_TABLE_OPTIONS = [option.key() for option in (DML_SYNC, LOCAL_TIME_ZONE, MAX_COLUMN_WIDTH, STATE_TTL_MS)]


class SessionNames:
    """See the module docstring, and `Names`."""

    def __init__(self, tables: TableEnvironment) -> None:
        self._tables = tables

    def catalogs(self) -> Sequence[str]:
        return self._tables.list_catalogs()

    def databases(self, catalog: str | None = None) -> Sequence[str]:
        if catalog is None:
            return self._tables.list_databases()
        return self._shown(f"SHOW DATABASES FROM {format_path((catalog,))}") if catalog in self.catalogs() else ()

    def tables(self, path: Sequence[str] = ()) -> Sequence[str]:
        return self._shown(f"SHOW TABLES FROM {format_path(tuple(path))}" if path else "SHOW TABLES")

    def columns(self, path: Sequence[str]) -> Sequence[str]:
        def found() -> list[str]:
            return self._tables.from_path(format_path(tuple(path))).get_schema().get_field_names()

        return _or_nothing(found)

    def functions(self) -> Sequence[str]:
        return self._tables.list_functions()

    def options(self) -> Sequence[str]:
        set_now = self._tables.get_config().to_map()
        return sorted({*REGISTRY, *OPTIONS, *_TABLE_OPTIONS, *set_now})

    def _shown(self, sql: str) -> list[str]:
        def found() -> list[str]:
            with self._tables.execute_sql(sql).collect() as rows:
                return [row[0] for row in rows]

        return _or_nothing(found)


def _or_nothing(lookup: Callable[[], list[str]]) -> list[str]:
    try:
        return lookup()
    except PenstockError:
        return []  # the statement reports the error when it runs
