"""Regular expressions that mean the same in Java and in Arrow's kernels.

Arrow runs RE2, which processes a whole column at once and is several times as fast as calling Python's `re` for each
value. It supports less than Java, and some syntax means something else. Only syntax with the same meaning in both is
translated: literals, character classes, groups, branches, and repetitions of single characters. `java_patterns` handles
everything else.
"""

from __future__ import annotations

from typing import Final

#: any character except Java's line terminators
_DOT: Final = r"[^\n\r\x{85}\x{2028}\x{2029}]"
_CLASSES: Final = {"d": "0-9", "w": "0-9A-Za-z_", "s": r" \t\n\x0b\f\r"}
_CONTROLS: Final = {"t": r"\t", "n": r"\n", "r": r"\r", "f": r"\f"}
_REPEATS: Final = "*+?{"
#: RE2's limit on repetitions
_REPEAT_MAX: Final = 1000
#: the name of the captured group
GROUP: Final = "found"


class _OtherError(Exception):
    """Raised for syntax that is not translated."""


def linear(pattern: str, group: int | None = None) -> str | None:
    """Translate a Java regular expression to RE2. Returns None if the two might disagree.

    Args:
        pattern: the expression.
        group: the only group to capture, named `GROUP`; it must take part in every match. 0 for the whole match, None
            to
            capture nothing.
    """
    try:
        return _Translation(pattern, group).text()
    except (_OtherError, IndexError):
        return None


class _Translation:
    def __init__(self, pattern: str, group: int | None) -> None:
        self._pattern = pattern
        self._at = 0
        self._group = group
        self._groups = 0

    def text(self) -> str:
        """Translate the whole expression."""
        branches = self._branches(0)
        if self._at < len(self._pattern) or (self._group is not None and self._group > self._groups):
            raise _OtherError
        return f"(?P<{GROUP}>{branches})" if self._group == 0 else branches

    def _branches(self, depth: int) -> str:
        """Translate the inside of a group. The captured group must not be in one of several branches."""
        before = self._groups
        branches = [self._sequence(depth)]
        while self._peek() == "|":
            self._at += 1
            branches.append(self._sequence(depth))
        if len(branches) > 1 and self._group is not None and before < self._group <= self._groups:
            raise _OtherError
        return "|".join(branches)

    def _sequence(self, depth: int) -> str:
        parts = []
        while self._at < len(self._pattern) and self._peek() != "|":
            if self._peek() == ")":
                if not depth:
                    raise _OtherError
                break
            parts.append(self._part(depth))
        return "".join(parts)

    def _part(self, depth: int) -> str:
        char = self._next()
        if char == "(":
            return self._in_parentheses(depth)
        if char == "^":
            if self._sees_repeat():
                raise _OtherError
            return r"\A"
        if char in "*+?{$":
            raise _OtherError
        single = _DOT if char == "." else self._class() if char == "[" else self._escaped(char)
        return single + self._repeat()

    def _in_parentheses(self, depth: int) -> str:
        name = "?:"
        if self._peek() == "?":
            self._at += 1
            if self._next() != ":":
                raise _OtherError
        else:
            self._groups += 1
            if self._groups == self._group:
                name = f"?P<{GROUP}>"
        inner = self._branches(depth + 1)
        if self._next() != ")" or self._sees_repeat():
            raise _OtherError
        return f"({name}{inner})"

    def _escaped(self, char: str) -> str:
        if char != "\\":
            return char
        escaped = self._next()
        if escaped in _CLASSES:
            return f"[{_CLASSES[escaped]}]"
        if escaped.lower() in _CLASSES:
            return f"[^{_CLASSES[escaped.lower()]}]"
        return _literal(escaped)

    def _class(self) -> str:
        negated = "^" if self._peek() == "^" else ""
        self._at += len(negated)
        parts: list[str] = []
        while (char := self._next()) != "]" or not parts:
            if char in "[&^]" or ord(char) > 0xFFFF:
                # Java supports nested classes and intersections.
                raise _OtherError
            if char == "\\":
                escaped = self._next()
                parts.append(_CLASSES[escaped] if escaped in _CLASSES else _literal(escaped))
            elif char == "-" and (not parts or self._peek() == "]"):
                raise _OtherError
            else:
                parts.append(char)
        return f"[{negated}{''.join(parts)}]"

    def _repeat(self) -> str:
        if not self._sees_repeat():
            return ""
        begin = self._at
        if self._next() == "{":
            end = self._pattern.index("}", self._at) if "}" in self._pattern[self._at :] else -1
            counts = self._pattern[self._at : end].split(",")
            if end < 0 or len(counts) > 2 or not all(count.isascii() and count.isdigit() for count in counts if count):
                raise _OtherError
            numbers = [int(count) for count in counts if count]
            if not counts[0] or max(numbers) > _REPEAT_MAX or numbers != sorted(numbers):
                raise _OtherError
            self._at = end + 1
        if self._at < len(self._pattern) and self._peek() == "?":
            self._at += 1
        if self._sees_repeat():
            raise _OtherError
        return self._pattern[begin : self._at]

    def _sees_repeat(self) -> bool:
        return self._at < len(self._pattern) and self._pattern[self._at] in _REPEATS

    def _peek(self) -> str:
        return self._pattern[self._at] if self._at < len(self._pattern) else ""

    def _next(self) -> str:
        char = self._pattern[self._at]
        self._at += 1
        if "\ud800" <= char <= "\udfff" or char == "\0":
            raise _OtherError
        return char


def _literal(escaped: str) -> str:
    """Translate an escaped character that denotes itself or a control character."""
    if escaped in _CONTROLS:
        return _CONTROLS[escaped]
    if escaped.isascii() and not escaped.isalnum() and escaped.isprintable() and escaped != " ":
        return f"\\{escaped}"
    raise _OtherError
