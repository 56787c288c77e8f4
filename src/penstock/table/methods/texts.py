"""Strings: substrings, formatting and search."""

from __future__ import annotations

from typing import Self

from penstock.table.methods.operand import Operand, Unary, to_node
from penstock.table.sql import syntax


class Texts(Operand):
    """String methods. Positions count from 1."""

    char_length = Unary("CHAR_LENGTH", "The number of characters.")
    upper_case = Unary("UPPER", "The string in upper case.")
    lower_case = Unary("LOWER", "The string in lower case.")
    init_cap = Unary("INITCAP", "The string with the first letter of each word capitalized.")
    reverse = Unary("REVERSE", "The reversed string.")
    ascii = Unary("ASCII", "The code of the first character.")
    chr = Unary("CHR", "The character with this code.")

    def concat(self, other: object) -> Self:
        """Concatenate another string to the string."""
        return self._called("CONCAT", other)

    # --- parts -------------------------------------------------------------------------------------------------------

    def substring(self, begin_index: object, length: object | None = None) -> Self:
        """Return the substring from a position, at most `length` characters if given."""
        return self._called("SUBSTRING", begin_index, length)

    def substr(self, begin_index: object, length: object | None = None) -> Self:
        """Return the substring from a position, at most `length` characters if given."""
        return self._called("SUBSTR", begin_index, length)

    def left(self, length: object) -> Self:
        """Return the first `length` characters."""
        return self._called("LEFT", length)

    def right(self, length: object) -> Self:
        """Return the last `length` characters."""
        return self._called("RIGHT", length)

    def split(self, delimiter: object) -> Self:
        """Split at a delimiter into an array."""
        return self._called("SPLIT", delimiter)

    def split_index(self, separator: object, index: object) -> Self:
        """Split at a separator and return one part, counted from 0."""
        return self._called("SPLIT_INDEX", separator, index)

    def str_to_map(self, list_delimiter: object | None = None, key_value_delimiter: object | None = None) -> Self:
        """Parse a map of strings. By default, a comma separates entries and `=` separates keys and values."""
        if list_delimiter is None and key_value_delimiter is None:
            return self._called("STR_TO_MAP")
        entries = "," if list_delimiter is None else list_delimiter
        return self._called("STR_TO_MAP", entries, "=" if key_value_delimiter is None else key_value_delimiter)

    def elt(self, expr: object, *exprs: object) -> Self:
        """Return the expression whose index the number is, counted from 1."""
        return self._called("ELT", expr, *exprs)

    # --- form --------------------------------------------------------------------------------------------------------

    def trim(self, character: object | None = None) -> Self:
        """Trim spaces, or these characters, at both ends."""
        return self._trimmed("BOTH", character)

    def trim_leading(self, character: object | None = None) -> Self:
        """Trim spaces, or these characters, at the start."""
        return self._trimmed("LEADING", character)

    def trim_trailing(self, character: object | None = None) -> Self:
        """Trim spaces, or these characters, at the end."""
        return self._trimmed("TRAILING", character)

    def _trimmed(self, side: str, character: object | None) -> Self:
        return self._called("TRIM", character, options=(side,))

    def ltrim(self, trim_str: object | None = None) -> Self:
        """Trim spaces, or these characters, at the start."""
        return self._called("LTRIM", trim_str)

    def rtrim(self, trim_str: object | None = None) -> Self:
        """Trim spaces, or these characters, at the end."""
        return self._called("RTRIM", trim_str)

    def btrim(self, trim_str: object | None = None) -> Self:
        """Trim spaces, or these characters, at both ends."""
        return self._called("BTRIM", trim_str)

    def lpad(self, length: object, pad: object) -> Self:
        """Pad the string at the start with another one, repeated as needed, to a length."""
        return self._called("LPAD", length, pad)

    def rpad(self, length: object, pad: object) -> Self:
        """Pad the string at the end with another one, repeated as needed, to a length."""
        return self._called("RPAD", length, pad)

    def repeat(self, n: object) -> Self:
        """Repeat the string `n` times."""
        return self._called("REPEAT", n)

    def replace(self, search: object, replacement: object) -> Self:
        """Replace all occurrences of a substring."""
        return self._called("REPLACE", search, replacement)

    def translate(self, from_str: object, to_str: object) -> Self:
        """Replace each character of `from_str` by its counterpart in `to_str`, or remove it without one."""
        return self._called("TRANSLATE", from_str, to_str)

    def overlay(self, new_string: object, starting: object, length: object | None = None) -> Self:
        """Overwrite `length` characters from a position with a new string, by default as many as it has."""
        return self._called("OVERLAY", new_string, starting, length)

    def printf(self, *obj: object) -> Self:
        """Format values with the string as a Java format string."""
        return self._called("PRINTF", *(Operand(to_node(value)) for value in obj))

    # --- search ------------------------------------------------------------------------------------------------------

    def like(self, pattern: object, escape: object | None = None) -> Self:
        """Return whether the string matches a pattern: `%` matches any characters and `_` matches one."""
        return self._new(syntax.Like(self._node, to_node(pattern), None if escape is None else to_node(escape)))

    def similar(self, pattern: object) -> Self:
        """Return whether the string matches an SQL regular expression."""
        return self._new(syntax.Like(self._node, to_node(pattern), kind="SIMILAR TO"))

    def position(self, haystack: object) -> Self:
        """Return the position of the string in another one, or 0."""
        return self._called("POSITION", haystack)

    def locate(self, s: object, pos: object | None = None) -> Self:
        """Return the position of the string in `s`, at or after `pos`, or 0."""
        return self._called("LOCATE", s, pos)

    def instr(self, s: object) -> Self:
        """Return the position of `s` in the string, or 0."""
        return self._called("INSTR", s)

    def starts_with(self, start_expr: object) -> Self:
        """Return whether the string starts with another one."""
        return self._called("STARTSWITH", start_expr)

    def ends_with(self, end_expr: object) -> Self:
        """Return whether the string ends with another one."""
        return self._called("ENDSWITH", end_expr)

    # --- regular expressions as Java has them ------------------------------------------------------------------------

    def regexp(self, regex: object) -> Self:
        """Return whether any part of the string matches a regular expression."""
        return self._called("REGEXP", regex)

    def regexp_count(self, regex: object) -> Self:
        """Count the matches of a regular expression."""
        return self._called("REGEXP_COUNT", regex)

    def regexp_replace(self, regex: object, replacement: object) -> Self:
        """Replace all matches of a regular expression."""
        return self._called("REGEXP_REPLACE", regex, replacement)

    def regexp_extract(self, regex: object, extract_index: object | None = None) -> Self:
        """Return a group of the first match of a regular expression, by default group 0, the whole match."""
        return self._called("REGEXP_EXTRACT", regex, extract_index)

    def regexp_extract_all(self, regex: object, extract_index: object | None = None) -> Self:
        """Return a group of all matches of a regular expression as an array, by default group 1."""
        return self._called("REGEXP_EXTRACT_ALL", regex, extract_index)

    def regexp_instr(self, regex: object) -> Self:
        """Return the position of the first match of a regular expression, or 0."""
        return self._called("REGEXP_INSTR", regex)

    def regexp_substr(self, regex: object) -> Self:
        """Return the first match of a regular expression."""
        return self._called("REGEXP_SUBSTR", regex)
