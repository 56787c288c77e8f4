"""Syntax colouring at the prompt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.lexers import Lexer

from penstock.service.sql_shell.completion import WORDS
from penstock.service.sql_shell.scanning import Kind, Piece, scan

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
