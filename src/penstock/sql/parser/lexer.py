"""The SQL tokenizer, Flink's reserved words, and `Cursor`, a position in the tokens of a text.

Tokens are words, names in backticks, strings, numbers, operators, and hints, which look like comments. Reserved words
are names only in backticks. With a `Cursor`, parsers look ahead, consume the tokens they expect, and report unexpected
ones.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from typing import Final, NamedTuple, NoReturn, TypeVar

from penstock.base.copies import NESTING_MAX, SHALLOW_LEVELS, allow_deep_calls
from penstock.base.errors import PenstockError


class SqlParserError(PenstockError, ValueError):
    """Raised for text that is not valid Flink SQL. `line` and `column` count from 1."""

    suppresses_restart = True

    def __init__(self, reason: str, line: int = 0, column: int = 0) -> None:
        super().__init__(reason, line, column)
        self.reason, self.line, self.column = reason, line, column

    def __str__(self) -> str:
        return f"SQL parse failed. {self.reason} at line {self.line}, column {self.column}."


class Kind(Enum):
    """The kind of a token."""

    WORD = auto()
    QUOTED = auto()
    TEXT = auto()
    BINARY = auto()
    NUMBER = auto()
    OPERATOR = auto()
    HINT = auto()
    END = auto()


class Token(NamedTuple):
    """`text`: the word in capitals, the name, the value of a string, or the operator; `source`: the original text."""

    kind: Kind
    text: str
    source: str
    at: int


#: Longer operators come first.
_OPERATORS: Final = ("=>", "->", "<=", ">=", "<>", "!=", "||", "{-", "-}", *"+-*/%=<>(),.;[]{}?:|^$")
_TOKEN: Final = re.compile(
    r"\s*(?:"
    r"(?P<SPACE>(?:--|//)[^\n]*|\Z)"
    r"|(?P<HINT>/\*\+)"
    r"|(?P<COMMENT>/\*)"
    r"|(?P<TEXT>'(?:[^']|'')*')"
    r"|(?P<ESCAPED>[eE]'(?:[^'\\]|\\[\s\S]|'')*')"
    r"|(?P<PREFIXED>(?:[xX]|[nN]|[uU]&|_\w+)'(?:[^']|'')*')"
    r"|(?P<QUOTED>(?:[uU]&)?`(?:[^`]|``)+`)"
    r"|(?P<NUMBER>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<WORD>[^\W\d][\w$]*|\$[\w$]+)"
    rf"|(?P<OPERATOR>{'|'.join(map(re.escape, _OPERATORS))}))"
)
#: the tokens whose text equals their source
_PLAIN: Final = {"NUMBER": Kind.NUMBER, "OPERATOR": Kind.OPERATOR}
#: the escapes in E'…'
_ESCAPES: Final = re.compile(
    r"''|\\(?:(?P<CHAR>[bfnrt\\'\"])|x(?P<HEX>[0-9a-fA-F]{0,2})|u(?P<SHORT>[0-9a-fA-F]{4})|U(?P<LONG>[0-9a-fA-F]{8})"
    r"|(?P<OCTAL>[0-3][0-7]{2})|(?P<BROKEN>[uU]))"
)
_CONTROLS: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_SPACE: Final = re.compile(r"\s*")
_UESCAPE: Final = re.compile(r"\s*UESCAPE\s+'(.)'", re.IGNORECASE)


def place(sql: str, at: int) -> tuple[int, int]:
    """Return the line and column of an offset, from 1."""
    before = sql[:at]
    return before.count("\n") + 1, at - (before.rfind("\n") + 1) + 1


def tokenize(sql: str) -> list[Token]:
    """Return all tokens, the last of kind END. Raises `SqlParserError`."""
    tokens: list[Token] = []
    at, hint_end, end = 0, -1, len(sql)
    match_at, new = _TOKEN.match, tuple.__new__
    while at < end:
        match = match_at(sql, at)
        if match is None:
            at = _SPACE.match(sql, at).end()  # type: ignore[union-attr]
            raise SqlParserError(_unknown(sql, at), *place(sql, at))
        name = match.lastgroup or ""
        begin, at = match.span(name)
        if begin == hint_end:
            tokens.append(Token(Kind.HINT, "*/", "*/", begin))
            at = begin + 2
            continue
        source = sql[begin:at]
        kind = _PLAIN.get(name)
        if kind is not None:
            tokens.append(new(Token, (kind, source, source, begin)))
            if kind is Kind.NUMBER and at < end and sql[at] in ",)":
                # A fast path for long lists of numbers: it saves matching the separator.
                tokens.append(new(Token, (Kind.OPERATOR, sql[at], sql[at], at)))
                at += 1
        elif name == "SPACE":
            continue
        elif name == "WORD":
            tokens.append(Token(Kind.WORD, source.upper(), source, begin))
        elif name == "TEXT":
            tokens.append(Token(Kind.TEXT, source[1:-1].replace("''", "'"), source, begin))
        elif name == "ESCAPED":
            tokens.append(Token(Kind.TEXT, _unescaped(sql, source, begin), source, begin))
        elif name == "COMMENT":
            at = _end_of_comment(sql, begin) + 2
        elif name == "HINT":
            hint_end = _end_of_comment(sql, begin)
            tokens.append(Token(Kind.HINT, "/*+", source, begin))
        elif name == "QUOTED":
            quoted = source[source.index("`") + 1 : -1].replace("``", "`")
            tokens.append(Token(Kind.QUOTED, _decoded(quoted) if source[0] in "uU" else quoted, source, begin))
        else:
            escape = _UESCAPE.match(sql, at) if source[0] in "uU" else None
            tokens.append(_prefixed(sql, source, begin, "\\" if escape is None else escape[1]))
            at = at if escape is None else escape.end()
    tokens.append(Token(Kind.END, "", "<EOF>", end))
    return tokens


def _end_of_comment(sql: str, begin: int) -> int:
    end = sql.find("*/", begin + 2)
    if end < 0:
        raise SqlParserError("The comment has no end, which begins", *place(sql, begin))
    return end


def _prefixed(sql: str, source: str, at: int, escape: str) -> Token:
    prefix, _, rest = source.partition("'")
    text = rest[:-1].replace("''", "'")
    if prefix in "xX":
        if len(text) % 2 or re.search(r"[^0-9a-fA-F]", text):
            raise SqlParserError(f"{source} does not consist of pairs of hexadecimal digits,", *place(sql, at))
        return Token(Kind.BINARY, text, source, at)
    return Token(Kind.TEXT, _decoded(text, escape) if prefix in ("u&", "U&") else text, source, at)


def _unescaped(sql: str, source: str, at: int) -> str:
    """Return the value of E'…', with backslash escapes as in C. Unknown escapes are kept verbatim, as in Flink."""

    def character(match: re.Match[str]) -> str:
        if match["BROKEN"] is not None:
            digits = "four" if match["BROKEN"] == "u" else "eight"
            raise SqlParserError(f"{match[0]} needs {digits} hexadecimal digits, in the text", *place(sql, at))
        if match["CHAR"] is not None:
            return _CONTROLS.get(match["CHAR"], match["CHAR"])
        if match["OCTAL"] is not None:
            return chr(int(match["OCTAL"], 8))
        if match["HEX"] == "":
            return "x"
        digits = match["HEX"] or match["SHORT"] or match["LONG"]
        if digits is None:
            return "'"
        if int(digits, 16) > sys.maxunicode:
            raise SqlParserError(f"{match[0]} is no character, in the text", *place(sql, at))
        return chr(int(digits, 16))

    return _ESCAPES.sub(character, source[2:-1])


def _decoded(text: str, escape: str = "\\") -> str:
    """Decode Unicode escapes, which have four hexadecimal digits, or a + and six."""
    mark = re.escape(escape)
    pattern = rf"{mark}({mark}|[0-9a-fA-F]{{4}}|\+[0-9a-fA-F]{{6}})"
    return re.sub(pattern, lambda match: escape if match[1] == escape else chr(int(match[1].lstrip("+"), 16)), text)


def _unknown(sql: str, at: int) -> str:
    character = sql[at]
    if character in "'`":
        kind = "text" if character == "'" else "name"
        return f"A {kind} begins with {character} and does not end,"
    if character == '"':
        return 'Encountered "\\"": names are in backticks (`name`), and texts in single quotes,'
    return f"Encountered {character!r}, which means nothing,"


RESERVED: Final = frozenset(
    """
    ABS ALL ALLOCATE ALLOW ALTER AND ANY ARE ARRAY ARRAY_CONCAT_AGG ARRAY_MAX_CARDINALITY AS ASENSITIVE
    ASYMMETRIC AT ATOMIC AUTHORIZATION AVG BEGIN BEGIN_FRAME BEGIN_PARTITION BETWEEN BIGINT BINARY BIT BITMAP
    BLOB BOOLEAN BOTH BUCKETS BY BYTES CALL CALLED CARDINALITY CASCADED CASE CAST CATALOGS CEIL CEILING CHAR
    CHARACTER CHARACTER_LENGTH CHAR_LENGTH CHECK CLASSIFIER CLOB CLOSE COALESCE COLLATE COLLECT COLUMN COMMENT
    COMMIT CONDITION CONNECT CONNECTIONS CONSTRAINT CONTAINS CONTAINS_SUBSTR CONTINUOUS CONVERT CORR
    CORRESPONDING COUNT COVAR_POP COVAR_SAMP CREATE CROSS CUBE CUME_DIST CURRENT CURRENT_CATALOG CURRENT_DATE
    CURRENT_DEFAULT_TRANSFORM_GROUP CURRENT_PATH CURRENT_ROLE CURRENT_ROW CURRENT_SCHEMA CURRENT_TIME
    CURRENT_TIMESTAMP CURRENT_TRANSFORM_GROUP_FOR_TYPE CURRENT_USER CURSOR CYCLE DATABASES DATE DATETIME
    DATETIME_TRUNC DATE_TRUNC DAY DEALLOCATE DEC DECIMAL DECLARE DEFAULT DEFINE DELETE DENSE_RANK DEREF DESCRIBE
    DETERMINISTIC DISALLOW DISCONNECT DISTINCT DISTRIBUTED DISTRIBUTION DOT DOUBLE DROP DYNAMIC EACH ELEMENT
    ELSE EMPTY END END_FRAME END_PARTITION EQUALS ESCAPE EVERY EXCEPT EXEC EXECUTE EXISTS EXP EXPLAIN EXTEND
    EXTENDED EXTERNAL EXTRACT FALSE FETCH FILTER FIRST_VALUE FLOAT FLOOR FOR FOREIGN FRAME_ROW FREE FRESHNESS
    FRIDAY FROM FULL FUNCTION FUNCTIONS FUSION GET GLOBAL GRANT GROUP GROUPING GROUPS GROUP_CONCAT HASH HAVING
    HOLD HOUR IDENTITY ILIKE IMPORT IN INCLUDE INDICATOR INITIAL INNER INOUT INSENSITIVE INSERT INT INTEGER
    INTERSECT INTERSECTION INTERVAL INTO IS JOIN JSON_ARRAY JSON_ARRAYAGG JSON_EXISTS JSON_OBJECT JSON_OBJECTAGG
    JSON_QUERY JSON_SCOPE JSON_VALUE LAG LANGUAGE LARGE LAST_VALUE LATERAL LEAD LEADING LEFT LIKE LIKE_REGEX
    LIMIT LN LOCAL LOCALTIME LOCALTIMESTAMP LOWER MATCH MATCHES MATCH_NUMBER MATCH_RECOGNIZE MATERIALIZED MAX
    MEASURES MEMBER MERGE METHOD MIN MINUS MINUTE MOD MODELS MODIFIES MODIFY MODULE MODULES MONDAY MONTH
    MULTISET NATIONAL NATURAL NCHAR NCLOB NEW NEXT NO NONE NORMALIZE NOT NTH_VALUE NTILE NULL NULLIF NUMERIC
    OCCURRENCES_REGEX OCTET_LENGTH OF OFFSET OLD OMIT ON ONE ONLY OPEN OR ORDER ORDINAL OUT OUTER OVER OVERLAPS
    OVERLAY PARAMETER PARTITION PATTERN PER PERCENT PERCENTILE_CONT PERCENTILE_DISC PERCENT_RANK PERIOD PERMUTE
    PIVOT PORTION POSITION POSITION_REGEX POWER PRECEDES PRECISION PREPARE PREV PRIMARY PROCEDURE PROCEDURES
    QUALIFY QUARTERS RANGE RANK RAW READS REAL RECURSIVE REF REFERENCES REFERENCING REFRESH REFRESH_MODE
    REGR_AVGX REGR_AVGY REGR_COUNT REGR_INTERCEPT REGR_R2 REGR_SLOPE REGR_SXX REGR_SXY REGR_SYY RELEASE RENAME
    RESET RESULT RESUME RETURN RETURNS REVOKE RIGHT RLIKE ROLLBACK ROLLUP ROW ROWS ROW_NUMBER RUNNING SAFE_CAST
    SAFE_OFFSET SAFE_ORDINAL SATURDAY SAVEPOINT SCALA SCOPE SCROLL SEARCH SECOND SEEK SELECT SENSITIVE SEPARATOR
    SESSION_USER SET SHOW SIMILAR SKIP SMALLINT SOME SPECIFIC SPECIFICTYPE SQL SQLEXCEPTION SQLSTATE SQLWARNING
    SQRT START STATEMENT STATIC STDDEV_POP STDDEV_SAMP STREAM STRING STRING_AGG STRUCTURED SUBMULTISET SUBSET
    SUBSTRING SUBSTRING_REGEX SUCCEEDS SUM SUNDAY SUSPEND SYMMETRIC SYSTEM SYSTEM_TIME SYSTEM_USER TABLE TABLES
    TABLESAMPLE THEN THURSDAY TIME TIMESTAMP TIMESTAMP_DIFF TIMESTAMP_LTZ TIMESTAMP_TRUNC TIMEZONE_HOUR
    TIMEZONE_MINUTE TIME_DIFF TIME_TRUNC TINYINT TO TRAILING TRANSLATE TRANSLATE_REGEX TRANSLATION TREAT TRIGGER
    TRIM TRIM_ARRAY TRUE TRUNCATE TRY_CAST TUESDAY UESCAPE UNION UNIQUE UNKNOWN UNNEST UNPIVOT UPDATE UPPER
    UPSERT USE USER USING VALUE VALUES VALUE_OF VARBINARY VARCHAR VARIANT VARYING VAR_POP VAR_SAMP VERSIONING
    VIEWS WATERMARK WATERMARKS WEDNESDAY WEEKS WHEN WHENEVER WHERE WIDTH_BUCKET WINDOW WITH WITHIN WITHOUT YEAR
    """.split()  # noqa: SIM905
)

#: Reserved words that are also functions.
CALLABLE: Final = frozenset(
    """
    ABS AVG CARDINALITY CHAR CHARACTER_LENGTH CHAR_LENGTH COALESCE COLLECT COUNT COVAR_POP COVAR_SAMP CUME_DIST
    CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP DENSE_RANK ELEMENT EVERY EXP FIRST_VALUE FUSION GROUPING HOUR
    INTERSECTION LAG LAST_VALUE LEAD LEFT LN LOCALTIME LOCALTIMESTAMP LOWER MAX MIN MINUTE MOD MONTH NTH_VALUE
    NTILE NULLIF OCTET_LENGTH PERCENT_RANK POWER RANK REGR_COUNT REGR_SXX REGR_SYY RIGHT ROW_NUMBER SECOND SOME
    SQRT STDDEV_POP STDDEV_SAMP SUM TRUNCATE UPPER USER VAR_POP VAR_SAMP YEAR
    """.split()  # noqa: SIM905
)
#: Functions that are called without parentheses.
BARE_FUNCTIONS: Final = frozenset(
    """
    CURRENT_CATALOG CURRENT_DATE CURRENT_DEFAULT_TRANSFORM_GROUP
    CURRENT_PATH CURRENT_ROLE CURRENT_SCHEMA CURRENT_TIME CURRENT_TIMESTAMP
    CURRENT_USER LOCALTIME LOCALTIMESTAMP SESSION_USER SYSTEM_USER USER
    """.split()  # noqa: SIM905
)

#: Functions whose operands have their own syntax.
SPECIAL: Final = frozenset(
    """
    CEIL CEILING CLASSIFIER CONVERT DATE DATETIME EXISTS EXTRACT FLOOR JSON_ARRAY JSON_ARRAYAGG JSON_EXISTS
    JSON_OBJECT JSON_OBJECTAGG JSON_QUERY JSON_VALUE MATCH_NUMBER NEXT OVERLAY PERCENTILE_CONT PERCENTILE_DISC
    PERIOD POSITION PREV SUBSTRING TIME TIMESTAMP TIMESTAMPADD TIMESTAMPDIFF TRANSLATE TRIM UNIQUE
    """.split()  # noqa: SIM905
)


T = TypeVar("T")
#: the kinds of tokens that parsers match by text
_SEEN: Final = (Kind.WORD, Kind.OPERATOR, Kind.HINT)


class Cursor:
    """The base class of all parsers, which share one position in one text."""

    def __init__(self, sql: str) -> None:
        self.sql = sql
        self.tokens = tokenize(sql)
        self.index = 0
        #: a run of opening parentheses: the index of the first one, and the index after the last one
        self._opening = (0, 0)
        #: the current nesting depth of expressions, queries and types
        self._open_levels = 0
        #: the most levels added on one path of the tree since the innermost level was opened
        self._added_levels = 0

    @property
    def token(self) -> Token:
        """The next token."""
        return self.tokens[self.index]

    def peek(self, ahead: int = 1) -> Token:
        """Return a token further ahead; past the end, always the last one."""
        return self.tokens[min(self.index + ahead, len(self.tokens) - 1)]

    def take(self) -> Token:
        """Consume the next token and return it."""
        token = self.token
        if token.kind is not Kind.END:
            self.index += 1
        return token

    # --- words and operators -----------------------------------------------------------------------------------------

    def sees(self, *texts: str) -> bool:
        """Return whether these words and operators come next."""
        tokens, index = self.tokens, self.index
        for text in texts:
            # The last token is the end marker, which callers never match by its text.
            token = tokens[index]
            if token.text != text or token.kind not in _SEEN:
                return False
            index += 1
        return True

    def sees_any(self, *texts: str) -> bool:
        """Return whether one of these words and operators comes next."""
        return any(self._is(self.token, text) for text in texts)

    @staticmethod
    def _is(token: Token, text: str) -> bool:
        return token.text == text and token.kind in _SEEN

    def accept(self, *texts: str) -> bool:
        """Consume these if they come next."""
        if self.sees(*texts):
            self.index += len(texts)
            return True
        return False

    def accept_any(self, *texts: str) -> str | None:
        """Consume one of these if it comes next."""
        return self.take().text if self.sees_any(*texts) else None

    def expect(self, *texts: str) -> None:
        """Consume these. Raises `SqlParserError` for anything else."""
        for text in texts:
            if not self.accept(text):
                self.fail(f'expected "{text}"')

    def fail(self, expected: str) -> NoReturn:
        """Raise `SqlParserError` for an unexpected next token."""
        self.refuse(f'Encountered "{self.token.source}": {expected},', self.token.at)

    def refuse(self, reason: str, at: int) -> NoReturn:
        """Raise `SqlParserError` for a construct that begins at an offset."""
        raise SqlParserError(reason, *place(self.sql, at))

    # --- levels ------------------------------------------------------------------------------------------------------

    def open_level(self) -> int:
        """Begin a nested tree. Returns the argument for `close_level`. Raises `SqlParserError` if it is too deep.

        The parser recurses once for each open level. `a + b + c` opens no level, but its tree has two nested operators:
        `add_level` counts these. A tree is thus at most as tall as both limits together.
        """
        self._open_levels += 1
        if self._open_levels > SHALLOW_LEVELS:
            self._check_levels(self._open_levels)
        before, self._added_levels = self._added_levels, 0
        return before

    def close_level(self, before: int) -> None:
        """End the tree that `open_level` began."""
        self._open_levels -= 1
        self._added_levels = max(before, self._added_levels)

    def add_level(self) -> None:
        """Count one more node above the tree that was parsed last. Raises `SqlParserError` if the tree is too tall."""
        self._added_levels += 1
        if self._added_levels > SHALLOW_LEVELS:
            self._check_levels(self._added_levels)

    def _check_levels(self, levels: int) -> None:
        allow_deep_calls()
        if levels > NESTING_MAX:
            self.refuse(
                f"The statement nests more than {NESTING_MAX} levels deep: split it, for example by views or WITH,",
                self.token.at,
            )

    @contextmanager
    def trying(self) -> Iterator[None]:
        """Restore the starting position if a `SqlParserError` is raised, and re-raise it."""
        before = self.index, self._open_levels, self._added_levels
        try:
            yield
        except SqlParserError:
            self.index, self._open_levels, self._added_levels = before
            raise

    # --- names and literals ------------------------------------------------------------------------------------------

    def sees_name(self) -> bool:
        """Return whether a name comes next."""
        token = self.token
        return token.kind is Kind.QUOTED or (token.kind is Kind.WORD and token.text not in RESERVED)

    def name(self) -> str:
        """Parse a name, keeping its case."""
        if not self.sees_name():
            word = self.token
            if word.kind is Kind.WORD:
                self.fail(f"expected a name, and this word is reserved; put it in backticks (`{word.source}`)")
            self.fail("expected a name")
        token = self.take()
        return token.text if token.kind is Kind.QUOTED else token.source

    def accept_name(self) -> str | None:
        """Parse a name if one comes next."""
        return self.name() if self.sees_name() else None

    def path(self) -> tuple[str, ...]:
        """Parse names separated by dots."""
        parts = [self.name()]
        while self.sees("."):
            self.take()
            parts.append(self.name())
        return tuple(parts)

    def text(self) -> str:
        """Parse a string literal; adjacent literals are concatenated."""
        parts = [self.single_text()]
        while self.token.kind is Kind.TEXT:
            parts.append(self.take().text)
        return "".join(parts)

    def single_text(self) -> str:
        """Parse one string literal, without concatenating the literals after it."""
        if self.token.kind is not Kind.TEXT:
            self.fail("expected a text in single quotes")
        return self.take().text

    def accept_text(self) -> str | None:
        """Parse a string literal if one comes next."""
        return self.text() if self.token.kind is Kind.TEXT else None

    def whole_number(self) -> int:
        """Parse a whole number without a sign."""
        if self.token.kind is not Kind.NUMBER or not self.token.text.isdecimal():
            self.fail("expected a whole number")
        return int(self.take().text)

    # --- lists -------------------------------------------------------------------------------------------------------

    def parse_items(self, parse: Callable[[], T]) -> list[T]:
        """Parse one or more items separated by commas."""
        items = [parse()]
        tokens = self.tokens
        while tokens[self.index].text == "," and tokens[self.index].kind is Kind.OPERATOR:
            self.index += 1
            items.append(parse())
        return items

    def in_parentheses(self, parse: Callable[[], T]) -> T:
        """Parse an item in parentheses."""
        self.expect("(")
        parsed = parse()
        self.expect(")")
        return parsed

    def names_in_parentheses(self) -> tuple[str, ...]:
        """Parse names separated by commas, in parentheses."""
        return tuple(self.in_parentheses(lambda: self.parse_items(self.name)))

    @property
    def has_ended(self) -> bool:
        """Whether all tokens are consumed."""
        return self.token.kind is Kind.END

    def finish(self) -> None:
        """Check that all tokens are consumed."""
        if not self.has_ended:
            self.fail("expected the end of the statement")
