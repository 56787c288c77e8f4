"""The options of CSV tables."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.table.connectors.formats.text_columns import TextRules


@dataclass(frozen=True, slots=True)
class CsvRules:
    """The options of the format `csv`. `quote`, `escape` and `null` (the text for NULL) are None if unused."""

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    has_comments: bool = False
    ignores_errors: bool = False
    separator: str = ";"
    null: str | None = None
    has_short_decimals: bool = True

    def text(self) -> TextRules:
        """Return the rules for single values."""
        return TextRules(self.null, self.separator)
