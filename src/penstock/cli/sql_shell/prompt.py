"""The prompt: multi-line statements, with history, completion and colours.

Syntax colouring at the prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import Lexer
from prompt_toolkit.output import Output

from penstock.base.secrets import hide
from penstock.cli.sql_shell.completion import WORDS, Names, SessionNames, candidates
from penstock.cli.sql_shell.display import COLOR_SCHEMA, SHOW_LINE_NUMBERS
from penstock.cli.sql_shell.shell import Shell, write_out
from penstock.cli.sql_shell.statements import Kind, Piece, error_text, is_complete, scan, split
from penstock.sql.parser.statements import ShellCommand

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
    """Completion for prompt-toolkit."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """See `Completer`."""
        # If there are several statements, complete the unfinished one.
        open_ones = [statement for statement in split(document.text_before_cursor) if not statement.is_closed]
        before = document.text_before_cursor
        if open_ones:
            before = before[before.rindex(open_ones[-1].text) :]
        elif before.rstrip().endswith(";"):
            before = ""
        completions = candidates(before, document.text_after_cursor, self._names)
        return (Completion(text, -completions.length) for text in completions.texts)


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
            completer=SqlCompleter(SessionNames(shell.tables)),
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
            self._shell.jobs.cancel_all()

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
