"""Java's regular expressions, translated for Python's `re` and for Arrow's kernels.

`compiled` translates a pattern for Python's `re`.

`linear` returns regular expressions that mean the same in Java and in Arrow's kernels. Arrow runs RE2, which processes
a whole column at once and is several times as fast as calling Python's `re` for each value. It supports less than Java,
and some syntax means something else. Only syntax with the same meaning in both is translated: literals, character
classes, groups, branches, and repetitions of single characters. Python's `re` handles everything else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from penstock.base.errors import UnsupportedError
from penstock.codecs.serialization import parse_digits
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.functions import characters
from penstock.sql.functions.characters import Ranges


class InvalidPatternError(TableRuntimeError):
    """Raised for invalid regular expressions."""


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a Java regular expression. Raises `InvalidPatternError` if it is invalid."""
    parser = _Parser(pattern)
    try:
        return re.compile(parser.translated(), re.ASCII | (re.IGNORECASE if parser.ignores_case else 0))
    except re.error as error:
        if "look-behind" in str(error):
            raise UnsupportedError(f"what looks behind in {pattern!r} must have one length") from error
        raise InvalidPatternError(f"{pattern!r} is no regular expression: {error}") from error
    except (RecursionError, OverflowError, ValueError) as error:  # a number of repetitions has thousands of digits
        raise InvalidPatternError(f"the regular expression {pattern!r} is too large") from error


def matches(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Find matches as Java does: after an empty match, continue at the next character."""
    at = 0
    while at <= len(text) and (match := pattern.search(text, at)) is not None:
        yield match
        at = match.end() + (match.end() == match.start())


def replaced(pattern: re.Pattern[str], text: str, replacement: str) -> str:
    """Replace each match."""
    parts: list[str] = []
    at = 0
    for match in matches(pattern, text):
        parts += (text[at : match.start()], replacement)
        at = match.end()
    return "".join([*parts, text[at:]])


def split(pattern: re.Pattern[str], text: str, limit: int = 0) -> list[str]:
    """Split at matches into at most `limit` parts: 0 returns all parts except empty ones at the end, -1 returns all."""
    parts: list[str] = []
    at = 0
    for match in matches(pattern, text):
        if len(parts) + 1 == limit:
            break
        if match.end() == 0:
            continue
        parts.append(text[at : match.start()])
        at = match.end()
    parts.append(text[at:])
    while limit == 0 and len(parts) > 1 and not parts[-1]:
        parts.pop()
    return [] if limit == 0 and parts == [""] and at else parts


_ENDS: Final = "[\\n\\r\\x85\\u2028\\u2029]"
_AT_END: Final = "(?=\\Z|\\r\\n\\Z|[\\r\\x85\\u2028\\u2029]\\Z|(?<!\\r)\\n\\Z)"
_AT_LINE_END: Final = "(?=\\Z|[\\r\\x85\\u2028\\u2029]|(?<!\\r)\\n)"
_AT_LINE_BEGIN: Final = "(?:\\A|(?:(?<=[\\n\\x85\\u2028\\u2029])|(?<=\\r)(?!\\n))(?!\\Z))"
_ESCAPES: Final = {
    "A": "\\A",
    "b": "\\b",
    "B": "\\B",
    "z": "\\Z",
    "Z": _AT_END,
    "R": "(?:\\r\\n|[\\n\\x0b\\x0c\\r\\x85\\u2028\\u2029])",
}
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_FLAGS: Final = frozenset("idmsuxU")
_NEVER: Final = "(?!)"


def _class_text(ranges: Ranges, is_negated: bool = False) -> str:
    if not ranges:
        return "[\\s\\S]" if is_negated else _NEVER
    parts = [_one(low) if low == high else f"{_one(low)}-{_one(high)}" for low, high in ranges]
    return f"[{'^' if is_negated else ''}{''.join(parts)}]"


def _one(code: int) -> str:
    return chr(code) if code < 128 and chr(code).isalnum() else f"\\U{code:08x}"


class _Parser:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.groups = 0
        self.names: set[str] = set()
        self.flags: frozenset[str] = frozenset()
        #: whether matching ignores case by default
        self.ignores_case = False

    def translated(self) -> str:
        begin = re.match(r"\(\?([a-zA-Z]+)\)", self.pattern)
        self.ignores_case = begin is not None and "i" in begin.group(1)
        branches = self._branches()
        if self.at < len(self.pattern):
            raise self._invalid("unmatched )")
        return "|".join(branches)

    def _invalid(self, why: str) -> InvalidPatternError:
        return InvalidPatternError(f"{self.pattern!r} is no regular expression: {why} at character {self.at}")

    def _peek(self, count: int = 1) -> str:
        return self.pattern[self.at : self.at + count]

    def _take(self, count: int = 1) -> str:
        text = self._peek(count)
        if len(text) < count:
            raise self._invalid("it ends too early")
        self.at += count
        return text

    def _until(self, end: str) -> str:
        position = self.pattern.find(end, self.at)
        if position < 0:
            raise self._invalid(f"no {end}")
        text = self.pattern[self.at : position]
        self.at = position + len(end)
        return text

    def _branches(self) -> list[str]:
        branches, parts = [], list[str]()
        while (char := self._peek()) not in ("", ")"):
            if char == "|":
                self.at += 1
                branches.append("".join(parts))
                parts = []
            elif "x" in self.flags and (char.isspace() or char == "#"):
                rest = re.compile(r"\s|#[^\n]*").match(self.pattern, self.at)
                self.at = rest.end() if rest is not None else self.at + 1
            else:
                parts.append(self._quantified(self._item()))
        return [*branches, "".join(parts)]

    def _quantified(self, item: str) -> str:
        match = re.compile(r"(?:[*+?]|\{(\d+)(?:,(\d*))?\})[?+]?").match(self.pattern, self.at)
        if match is None or not item:
            return item
        self.at = match.end()
        return f"(?:{item}){match.group()}" if len(item) > 1 else item + match.group()

    def _item(self) -> str:
        char = self._take()
        match char:
            case "(":
                return self._group()
            case "[":
                is_negated, ranges = self._class()
                return self._cased(_class_text(ranges, is_negated))
            case "\\":
                return self._escape()
            case ".":
                return "[\\s\\S]" if "s" in self.flags else _class_text(characters.LINE_ENDS, True)
            case "^":
                return _AT_LINE_BEGIN if "m" in self.flags else "\\A"
            case "$":
                return _AT_LINE_END if "m" in self.flags else _AT_END
            case "*" | "+" | "?" | "{":
                raise self._invalid(f"nothing that {char} could repeat")
            case _:
                return self._cased(re.escape(char))

    def _cased(self, item: str) -> str:
        """Add a flag to a part whose case sensitivity differs from the default."""
        ignores = "i" in self.flags
        is_unicode = ignores and ("u" in self.flags or "U" in self.flags)
        if is_unicode:
            return f"(?iu:{item})"
        return item if ignores == self.ignores_case else f"(?{'' if ignores else '-'}i:{item})"

    # --- groups ------------------------------------------------------------------------------------------------------

    def _group(self) -> str:
        if self._peek() != "?":
            self.groups += 1
            return f"({self._inside()})"
        self.at += 1
        for begin in (":", ">", "=", "!"):
            if self._peek() == begin:
                self.at += 1
                return f"(?{begin}{self._inside()})"
        if self._peek(2) in ("<=", "<!"):
            return self._behind(self._take(2))
        if self._peek() == "<":
            self.at += 1
            name = self._until(">")
            if not re.fullmatch("[a-zA-Z][a-zA-Z0-9]*", name) or name in self.names:
                raise self._invalid(f"the name {name!r} of a group is wrong, or there twice")
            self.names.add(name)
            self.groups += 1
            return f"(?P<{name}>{self._inside()})"
        return self._flag_group()

    def _inside(self) -> str:
        return "|".join(self._inside_branches())

    def _inside_branches(self) -> list[str]:
        flags = self.flags
        branches = self._branches()
        if self._peek() != ")":
            raise self._invalid("no )")
        self.at += 1
        self.flags = flags
        return branches

    def _behind(self, begin: str) -> str:
        """Translate each branch to a lookbehind of its own, because Python requires a fixed length in each."""
        parts = [f"(?{begin}{branch})" for branch in self._inside_branches()]
        return "".join(parts) if begin == "<!" else f"(?:{'|'.join(parts)})"

    def _flag_group(self) -> str:
        match = re.compile(r"([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])").match(self.pattern, self.at)
        if match is None or not _FLAGS.issuperset(match.group(1) + (match.group(2) or "")):
            raise self._invalid("an unknown kind of group")
        self.at = match.end()
        changed = (self.flags | set(match.group(1))) - set(match.group(2) or "")
        if match.group(3) == ")":
            self.flags = changed
            return ""
        before, self.flags = self.flags, changed
        inside = self._inside()
        self.flags = before
        return f"(?:{inside})"

    # --- what follows a backslash ------------------------------------------------------------------------------------

    def _escape(self) -> str:
        char = self._take()
        if char in "123456789":
            return self._reference(char)
        if char == "Q":
            return self._quoted()
        if char == "E":
            return ""
        if char == "k":
            if self._take() != "<" or (name := self._until(">")) not in self.names:
                raise self._invalid("no group of this name")
            return self._cased(f"(?P={name})")
        if char in _ESCAPES:
            return _ESCAPES[char]
        if char in "dDwWsS" and "U" in self.flags:
            return f"(?u:\\{char})"
        if char in characters.SHORT:
            return _class_text(characters.SHORT[char]) if char in "hHvV" else f"\\{char}"
        if char in "pP":
            return self._cased(_class_text(self._property(), char == "P"))
        return self._cased(re.escape(self._character(char)))

    def _reference(self, digits: str) -> str:
        while self._peek().isdigit() and self._peek().isascii() and int(digits + self._peek()) <= self.groups:
            digits += self._take()
        return self._cased(f"(?:\\{digits})") if int(digits) <= self.groups else _NEVER

    def _quoted(self) -> str:
        """Quote literal text. A following quantifier applies to its last character."""
        position = self.pattern.find("\\E", self.at)
        text = self.pattern[self.at : position if position >= 0 else len(self.pattern)]
        self.at = position + 2 if position >= 0 else len(self.pattern)
        quoted = [self._cased(re.escape(char)) for char in text]
        return "".join([*quoted[:-1], self._quantified(quoted[-1])]) if quoted else ""

    def _property(self) -> Ranges:
        return characters.named(self._until("}") if self._take() == "{" else self.pattern[self.at - 1])

    def _character(self, char: str) -> str:
        """Return the single character that an escape denotes."""
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char == "0":
            match = re.compile("[0-3]?[0-7]{1,2}").match(self.pattern, self.at)
            return self._coded(match, 8)
        if char == "x":
            brace = re.compile(r"\{([0-9a-fA-F]+)\}").match(self.pattern, self.at)
            return self._coded(brace or re.compile("([0-9a-fA-F]{2})").match(self.pattern, self.at), 16, 1)
        if char == "u":
            return self._coded(re.compile("[0-9a-fA-F]{4}").match(self.pattern, self.at), 16)
        if char == "c":
            return chr(ord(self._take()) ^ 64)
        if char.isascii() and char.isalpha():
            raise self._invalid(f"\\{char} means nothing")
        return char

    def _coded(self, match: re.Match[str] | None, base: int, group: int = 0) -> str:
        if match is None or int(match.group(group), base) > characters.LAST:
            raise self._invalid("no code of a character")
        self.at = match.end()
        return chr(int(match.group(group), base))

    # --- classes of characters ---------------------------------------------------------------------------------------

    def _class(self) -> tuple[bool, Ranges]:
        """Parse a class after its `[`. Returns whether it is negated, and its characters."""
        is_negated = self._peek() == "^"
        self.at += is_negated
        ranges: Ranges | None = None
        parts: list[tuple[int, int]] = []
        is_first = True
        while is_first or self._peek() != "]":
            is_first = False
            if self._peek(2) == "&&":
                self.at += 2
                if parts:
                    ranges = _both(ranges, parts)
                    parts = []
            else:
                parts += self._class_part()
        self.at += 1
        return is_negated, _both(ranges, parts) if parts or ranges is None else ranges

    def _class_part(self) -> Ranges:
        char = self._take()
        if char == "[":
            is_negated, ranges = self._class()
            return characters.complement(ranges) if is_negated else ranges
        if char == "\\":
            char = self._take()
            if char in characters.SHORT:
                return characters.SHORT[char]
            if char in "pP":
                ranges = self._property()
                return characters.complement(ranges) if char == "P" else ranges
            if char == "Q":
                return characters.union((ord(literal), ord(literal)) for literal in self._until("\\E"))
            char = self._character(char)
        elif "x" in self.flags and char.isspace():
            return ()
        low = high = ord(char)
        if self._peek() == "-" and self._peek(2) not in ("-", "-]", "-["):
            self.at += 1
            end = self._take()
            high = ord(self._character(self._take()) if end == "\\" else end)
            if high < low:
                raise self._invalid("a range of characters that ends before it begins")
        return ((low, high),)


def _both(ranges: Ranges | None, parts: list[tuple[int, int]]) -> Ranges:
    here = characters.union(parts)
    return here if ranges is None else characters.intersection(ranges, here)


#: any character except Java's line terminators
_DOT: Final = r"[^\n\r\x{85}\x{2028}\x{2029}]"
_CLASSES: Final = {"d": "0-9", "w": "0-9A-Za-z_", "s": r" \t\n\x0b\f\r"}
_LINEAR_CONTROLS: Final = {"t": r"\t", "n": r"\n", "r": r"\r", "f": r"\f"}
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
            numbers = [parse_digits(count) for count in counts if count]
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
    if escaped in _LINEAR_CONTROLS:
        return _LINEAR_CONTROLS[escaped]
    if escaped.isascii() and not escaped.isalnum() and escaped.isprintable() and escaped != " ":
        return f"\\{escaped}"
    raise _OtherError
