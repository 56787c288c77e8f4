"""Texts: their parts, their form, and what is looked for in them."""

from __future__ import annotations

from typing import Self

from penstock.table.methods.operand import Operand, Unary, node_of
from penstock.table.sql import syntax


class Texts(Operand):
    """What there is for texts. Places in a text are counted from 1."""

    char_length = Unary("CHAR_LENGTH", "How many characters the text has.")
    upper_case = Unary("UPPER", "The text in capitals.")
    lower_case = Unary("LOWER", "The text in small letters.")
    init_cap = Unary("INITCAP", "The text with a capital at the beginning of each word.")
    reverse = Unary("REVERSE", "The text from its end to its beginning.")
    ascii = Unary("ASCII", "The number of the first character.")
    chr = Unary("CHR", "The character with this number.")

    def concat(self, other: object) -> Self:
        """The text and another one after it."""
        return self._called("CONCAT", other)

    # --- parts -------------------------------------------------------------------------------------------------------

    def substring(self, begin_index: object, length: object | None = None) -> Self:
        """The text from a place on, or so many characters of it."""
        return self._called("SUBSTRING", begin_index, length)

    def substr(self, begin_index: object, length: object | None = None) -> Self:
        """The text from a place on, or so many characters of it."""
        return self._called("SUBSTR", begin_index, length)

    def left(self, length: object) -> Self:
        """The first so many characters."""
        return self._called("LEFT", length)

    def right(self, length: object) -> Self:
        """The last so many characters."""
        return self._called("RIGHT", length)

    def split(self, delimiter: object) -> Self:
        """An array of the parts that a delimiter tells apart."""
        return self._called("SPLIT", delimiter)

    def split_index(self, separator: object, index: object) -> Self:
        """One of the parts that a separator tells apart, counted from 0."""
        return self._called("SPLIT_INDEX", separator, index)

    def str_to_map(self, list_delimiter: object | None = None, key_value_delimiter: object | None = None) -> Self:
        """A map of texts. Entries have a comma in between, keys and values `=`, unless delimiters are given."""
        if list_delimiter is None and key_value_delimiter is None:
            return self._called("STR_TO_MAP")
        entries = "," if list_delimiter is None else list_delimiter
        return self._called("STR_TO_MAP", entries, "=" if key_value_delimiter is None else key_value_delimiter)

    def elt(self, expr: object, *exprs: object) -> Self:
        """The one of these texts whose number it is, counted from 1."""
        return self._called("ELT", expr, *exprs)

    # --- form --------------------------------------------------------------------------------------------------------

    def trim(self, character: object | None = None) -> Self:
        """The text without spaces, or without these characters, at both ends."""
        return self._trimmed("BOTH", character)

    def trim_leading(self, character: object | None = None) -> Self:
        """The text without spaces, or without these characters, at its beginning."""
        return self._trimmed("LEADING", character)

    def trim_trailing(self, character: object | None = None) -> Self:
        """The text without spaces, or without these characters, at its end."""
        return self._trimmed("TRAILING", character)

    def _trimmed(self, side: str, character: object | None) -> Self:
        return self._called("TRIM", character, options=(side,))

    def ltrim(self, trim_str: object | None = None) -> Self:
        """The text without spaces, or without these characters, at its beginning."""
        return self._called("LTRIM", trim_str)

    def rtrim(self, trim_str: object | None = None) -> Self:
        """The text without spaces, or without these characters, at its end."""
        return self._called("RTRIM", trim_str)

    def btrim(self, trim_str: object | None = None) -> Self:
        """The text without spaces, or without these characters, at both ends."""
        return self._called("BTRIM", trim_str)

    def lpad(self, length: object, pad: object) -> Self:
        """The text with another one before it as often as needed, so that it has this length."""
        return self._called("LPAD", length, pad)

    def rpad(self, length: object, pad: object) -> Self:
        """The text with another one after it as often as needed, so that it has this length."""
        return self._called("RPAD", length, pad)

    def repeat(self, n: object) -> Self:
        """The text `n` times."""
        return self._called("REPEAT", n)

    def replace(self, search: object, replacement: object) -> Self:
        """The text with another one in place of a part, wherever that occurs."""
        return self._called("REPLACE", search, replacement)

    def translate(self, from_str: object, to_str: object) -> Self:
        """The text with each character of `from_str` replaced by the one at its place in `to_str`, if any."""
        return self._called("TRANSLATE", from_str, to_str)

    def overlay(self, new_string: object, starting: object, length: object | None = None) -> Self:
        """The text with a new one over so many characters from a place on; as many as it has unless they are given."""
        return self._called("OVERLAY", new_string, starting, length)

    def printf(self, *obj: object) -> Self:
        """The text, a format as Java has them, with these values put in."""
        return self._called("PRINTF", *(Operand(node_of(one)) for one in obj))

    # --- search ------------------------------------------------------------------------------------------------------

    def like(self, pattern: object, escape: object | None = None) -> Self:
        """Whether the text is like a pattern, in which `%` stands for any characters and `_` for one."""
        return self._new(syntax.Like(self._node, node_of(pattern), None if escape is None else node_of(escape)))

    def similar(self, pattern: object) -> Self:
        """Whether the text is like a regular expression as SQL has them."""
        return self._new(syntax.Like(self._node, node_of(pattern), kind="SIMILAR TO"))

    def position(self, haystack: object) -> Self:
        """The place where the text begins in another one, or 0."""
        return self._called("POSITION", haystack)

    def locate(self, s: object, pos: object | None = None) -> Self:
        """The place where the text begins in `s`, at `pos` or after it, or 0."""
        return self._called("LOCATE", s, pos)

    def instr(self, s: object) -> Self:
        """The place where `s` begins in the text, or 0."""
        return self._called("INSTR", s)

    def starts_with(self, start_expr: object) -> Self:
        """Whether the text begins with another one."""
        return self._called("STARTSWITH", start_expr)

    def ends_with(self, end_expr: object) -> Self:
        """Whether the text ends with another one."""
        return self._called("ENDSWITH", end_expr)

    # --- regular expressions as Java has them ------------------------------------------------------------------------

    def regexp(self, regex: object) -> Self:
        """Whether a part of the text matches a regular expression."""
        return self._called("REGEXP", regex)

    def regexp_count(self, regex: object) -> Self:
        """How many parts of the text match a regular expression."""
        return self._called("REGEXP_COUNT", regex)

    def regexp_replace(self, regex: object, replacement: object) -> Self:
        """The text with another one in place of all parts that match a regular expression."""
        return self._called("REGEXP_REPLACE", regex, replacement)

    def regexp_extract(self, regex: object, extract_index: object | None = None) -> Self:
        """What a group of a regular expression matches first; group 0, which is all of it, unless it is given."""
        return self._called("REGEXP_EXTRACT", regex, extract_index)

    def regexp_extract_all(self, regex: object, extract_index: object | None = None) -> Self:
        """An array of all that a group of a regular expression matches; group 1 unless it is given."""
        return self._called("REGEXP_EXTRACT_ALL", regex, extract_index)

    def regexp_instr(self, regex: object) -> Self:
        """The place of the first part that matches a regular expression, or 0."""
        return self._called("REGEXP_INSTR", regex)

    def regexp_substr(self, regex: object) -> Self:
        """The first part that matches a regular expression."""
        return self._called("REGEXP_SUBSTR", regex)
