"""The prompt: multi-line statements, with history, completion and colours."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import Output

from penstock.base.secrets import hide
from penstock.service.sql_shell.colours import SqlLexer
from penstock.service.sql_shell.completion import Names, candidates
from penstock.service.sql_shell.display import COLOR_SCHEMA, SHOW_LINE_NUMBERS
from penstock.service.sql_shell.errors import error_text
from penstock.service.sql_shell.names import SessionNames
from penstock.service.sql_shell.results import write_out
from penstock.service.sql_shell.shell import Shell
from penstock.service.sql_shell.splitting import is_complete, split
from penstock.table.sql.statements import ShellCommand

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
