"""How a table is written as CSV."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.table.connectors.formats.text_columns import TextRules


@dataclass(frozen=True, slots=True)
class CsvRules:
    """The options of the format `csv`: `quote` and `escape` are None for none, `null` for no text that is NULL."""

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    has_comments: bool = False
    ignores_errors: bool = False
    separator: str = ";"
    null: str | None = None
    has_short_decimals: bool = True

    def text(self) -> TextRules:
        """How single values are written."""
        return TextRules(self.null, self.separator)
