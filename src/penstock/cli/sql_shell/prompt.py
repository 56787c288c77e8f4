"""The prompt: multi-line statements, with history, completion and syntax colouring.

`candidates` returns the completions at a position in a text: tables where tables are read, columns, option keys, SQL
words.

`SessionNames` are the names that a session knows, for completion. Names that cannot be looked up are not offered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import Lexer
from prompt_toolkit.output import Output

from penstock.base.errors import PenstockError
from penstock.base.options import REGISTRY
from penstock.base.secrets import hide
from penstock.cli.sql_shell.display import COLOR_SCHEMA, OPTIONS, SHOW_LINE_NUMBERS
from penstock.cli.sql_shell.shell import Shell, write_out
from penstock.cli.sql_shell.statements import Kind, Piece, error_text, is_complete, scan, split
from penstock.sql.parser.lexer import RESERVED
from penstock.sql.parser.statements import ShellCommand
from penstock.sql.parser.unparse import format_path
from penstock.sql.session.session import DML_SYNC, LOCAL_TIME_ZONE, MAX_COLUMN_WIDTH, STATE_TTL_MS
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


def find_word(before: str) -> str:
    """Return the unfinished word, name or text at the end of a statement, which completion replaces."""
    last = next((piece for piece in reversed(list(scan(before))) if not piece.is_blank), None)
    if last is None:
        return ""
    if last.kind is Kind.TEXT and not last.is_closed:
        return last.text[1:]
    return last.text if last.end == len(before) and last.kind in (Kind.WORD, Kind.QUOTED) else ""


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
        def complete() -> list[str]:
            return self._tables.from_path(format_path(tuple(path))).get_schema().get_field_names()

        return _or_nothing(complete)

    def functions(self) -> Sequence[str]:
        return self._tables.list_functions()

    def options(self) -> Sequence[str]:
        set_now = self._tables.get_config().to_map()
        return sorted({*REGISTRY, *OPTIONS, *_TABLE_OPTIONS, *set_now})

    def _shown(self, sql: str) -> list[str]:
        def complete() -> list[str]:
            with self._tables.execute_sql(sql).collect() as rows:
                return [row[0] for row in rows]

        return _or_nothing(complete)


def _or_nothing(lookup: Callable[[], list[str]]) -> list[str]:
    try:
        return lookup()
    except PenstockError:
        return []  # the statement reports the error when it runs


_WORDS: Final = frozenset(WORDS)
#: by scheme, the colours of SQL words, string literals, names in backticks, numbers, comments and hints
_COLOURS: Final = {
    "DEFAULT": "bold|ansigreen|ansicyan|ansimagenta|ansibrightblack|ansiyellow",
    "CHESTER": "bold #0066cc|#a5302a|#7b3f00|#b05a00|italic #7a7a7a|#00808a",
    "DARK": "bold #6f9fd8|#7fb37a|#d0a8e0|#d8a657|italic #8a8a8a|#6fc0b8",
    "DRACULA": "bold #ff79c6|#f1fa8c|#50fa7b|#bd93f9|italic #6272a4|#8be9fd",
    "LIGHT": "bold #00007f|#a31515|#267f99|#096d48|italic #5f7f5f|#795e26",
    "OBSIDIAN": "bold #93c763|#ec7600|#8cbbad|#ffcd22|italic #818e96|#a082bd",
    "SOLARIZED": "bold #859900|#2aa198|#268bd2|#d33682|italic #93a1a1|#cb4b16",
    "VS2010": "bold #0000ff|#a31515|#2b91af|#a04000|italic #008000|#808080",
}
_PLACES: Final = (Kind.WORD, Kind.TEXT, Kind.QUOTED, Kind.NUMBER, Kind.COMMENT, Kind.HINT)


def get_style(piece: Piece, scheme: str) -> str:
    """Return the style of a token; empty for names and operators."""
    is_plain = piece.kind not in _PLACES or (piece.kind is Kind.WORD and piece.text.upper() not in _WORDS)
    return "" if is_plain else _COLOURS[scheme].split("|")[_PLACES.index(piece.kind)]


class SqlLexer(Lexer):
    """Colours for prompt-toolkit. `scheme` returns the name of the current colour scheme."""

    def __init__(self, scheme: Callable[[], str]) -> None:
        self._scheme = scheme

    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        """See `Lexer`."""
        lines: list[StyleAndTextTuples] = [[]]
        scheme = self._scheme()
        for piece in scan(document.text):
            first, *rest = piece.text.split("\n")
            lines[-1].append((get_style(piece, scheme), first))
            for line in rest:
                lines.append([(get_style(piece, scheme), line)])
        return lambda number: lines[number] if number < len(lines) else []

    def invalidation_hash(self) -> str:
        """See `Lexer`. The lines change with the colour scheme."""
        return self._scheme()


WELCOME = "Penstock SQL. HELP; lists the commands, QUIT; exits.\n"


class SqlCompleter(Completer):
    """Completion for prompt-toolkit. `complete` returns the texts for the word between two parts of a statement."""

    def __init__(self, complete: Callable[[str, str], Sequence[str]]) -> None:
        self._complete = complete

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """See `Completer`."""
        # If there are several statements, complete the unfinished one.
        open_ones = [statement for statement in split(document.text_before_cursor) if not statement.is_closed]
        before = document.text_before_cursor
        if open_ones:
            before = before[before.rindex(open_ones[-1].text) :]
        elif before.rstrip().endswith(";"):
            before = ""
        length = len(find_word(before))
        return (Completion(text, -length) for text in self._complete(before, document.text_after_cursor))


class History(FileHistory):
    """Keeps statements with their secrets in memory, but writes them to the file without secrets."""

    def store_string(self, string: str) -> None:
        """Write a statement to the file."""
        super().store_string(hide(string))


class Prompt:
    """Reads statements and runs them, until QUIT.

    Args:
        shell: runs the statements.
        history: the file with the lines of earlier sessions.
        session: the name of the session.
        terminal_input: the source of keys; None for the terminal.
        terminal_output: where the prompt is drawn; None for the terminal.
    """

    def __init__(
        self,
        shell: Shell,
        history: Path,
        session: str | None = None,
        terminal_input: Input | None = None,
        terminal_output: Output | None = None,
    ) -> None:
        self._shell = shell
        self._message = "Penstock SQL> " if session is None else f"Penstock SQL [{session}]> "
        config = shell.tables.get_config()
        self._prompt: PromptSession[str] = PromptSession(
            self._message,
            multiline=True,
            prompt_continuation=self._continuation,
            lexer=SqlLexer(lambda: config.read(COLOR_SCHEMA)),
            completer=SqlCompleter(shell.complete),
            complete_while_typing=False,
            history=History(str(history)),
            enable_history_search=True,
            key_bindings=_bindings(),
            input=terminal_input,
            output=terminal_output,
        )

    def run(self) -> None:
        """Read and run statements until QUIT or Ctrl-D, then cancel the jobs that still run."""
        write_out(WELCOME)
        try:
            while not self._shell.is_over:
                for failure in self._shell.jobs.failures():
                    write_out(failure)
                try:
                    self._run(self._prompt.prompt())
                except KeyboardInterrupt:
                    continue  # Ctrl-C discards the typed text
                except EOFError:
                    self._shell.command(ShellCommand("QUIT"))
        finally:
            self._shell.close()

    def _run(self, text: str) -> None:
        """Run the typed statements, up to the first one that fails or is interrupted."""
        for statement in split(text):
            try:
                if not self._shell.run(statement):
                    return
            except Exception as error:  # noqa: BLE001 - a function or connector of the user may raise anything
                write_out(error_text(error, statement, verbose=self._shell.is_verbose))
                return
            if self._shell.is_over:
                return

    def _continuation(self, width: int, line_number: int, wrap_count: int) -> str:
        """Return the prefix of a statement's continuation lines."""
        shows_numbers = self._shell.tables.get_config().read(SHOW_LINE_NUMBERS)
        return f"{line_number + 1}> ".rjust(width) if shows_numbers else "> ".rjust(width)


def _bindings() -> KeyBindings:
    """Return the key bindings: Enter submits complete statements, and otherwise starts a new line.

    Ctrl-C needs no binding: while a query runs, it is a signal.
    """
    bindings = KeyBindings()

    @bindings.add("enter")
    def enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return bindings
