"""Random expressions of SQL, of values of every type: calls of all functions, and forms such as CAST and LIKE.

Most calls have operands that make sense, so that there is a value to compare; the rest says who refuses what.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Final

from penstock.sql.functions.registry import SCALAR_FUNCTIONS

#: Values by kind, one a line, or apart by `;`.
VALUES: Final = {
    "int": "0; 1; -1; 2; 3; 7; -5; 100; 2147483647; -2147483648; CAST(NULL AS INT)",
    "bigint": "CAST(5 AS BIGINT); 9223372036854775807; 1234567890123; CAST(NULL AS BIGINT)",
    "small": "CAST(5 AS TINYINT); CAST(-128 AS TINYINT); CAST(300 AS SMALLINT); CAST(NULL AS SMALLINT)",
    "double": "0e0; 1.5e0; -2.5e0; 1e300; 1e-7; 123456.789e0; CAST('NaN' AS DOUBLE); CAST(NULL AS DOUBLE)",
    "float": "CAST(1.1 AS FLOAT); CAST(-3.75 AS FLOAT); CAST(1e10 AS FLOAT); CAST(NULL AS FLOAT)",
    "decimal": "1.50; -12345.678; 0.005; CAST(123 AS DECIMAL(38, 10)); CAST(NULL AS DECIMAL(10, 2)); 0.5",
    "text": """''; 'a'; 'abc'; 'Hello World'; ' trim  '; '123'; '-1.5'; 'AbCabc'; '1e3'; 'true'; ','; 'é中文'
        CAST('ab' AS CHAR(4)); CAST('hello' AS VARCHAR(3)); '%a_'; 'SGVsbG8='; '48656c6c6f'; 'k1=v1,k2=v2'
        CAST(NULL AS STRING); 'a,b,c'""",
    "written time": """'2023-01-15'; '2023-01-15 12:30:45.123'; '1969-12-31 23:59:59'; '12:34:56'; '2023-13-45'
        '0001-01-01 00:00:00'; '9999-12-31 23:59:59.999'; '15/01/2023'""",
    "format": "'yyyy-MM-dd'; 'yyyy-MM-dd HH:mm:ss'; 'HH:mm'; 'dd/MM/yyyy'; 'yyyy-MM-dd HH:mm:ss.SSS'",
    "zone": "'UTC'; 'Asia/Shanghai'; 'America/Los_Angeles'; '+05:30'; 'GMT+8'",
    "json": """'{"a":1,"b":[1,2,{"c":null}],"d":"x"}'; '[1,2,3]'; '{}'; '{"a":'; 'true'; '{"a":{"b":1.50}}'""",
    "path": "'$'; '$.a'; '$.b[0]'; 'lax $.b[2].c'; 'strict $.z'; '$.b[*]'; '$.a.b'; '$[1]'",
    "url": """'http://user:pw@host.com:8080/p/a.html?q=1&b=2#ref'; 'not a url'; 'HOST'; 'PATH'; 'QUERY'; 'q'
        'https%3A%2F%2Fa.b%2F%3Fx%3D1'""",
    "pattern": r"'[a-c]+'; '(\w)(\w)'; '.*'; '('; '^a'; 'l+'; '[A-Z]'; '(\d)(\d)'",
    "boolean": "TRUE; FALSE; CAST(NULL AS BOOLEAN)",
    "date": "DATE '2020-02-29'; DATE '1969-12-31'; DATE '0001-01-01'; DATE '2021-01-03'; CAST(NULL AS DATE)",
    "time": "TIME '12:34:56'; TIME '00:00:00'; CAST(NULL AS TIME)",
    "timestamp": """TIMESTAMP '2020-02-29 12:34:56.123456789'; TIMESTAMP '2023-12-31 00:00:00'
        CAST('2023-05-06 07:08:09.1' AS TIMESTAMP(6)); CAST(NULL AS TIMESTAMP(3))""",
    "instant": """TO_TIMESTAMP_LTZ(1234567890123, 3); TO_TIMESTAMP_LTZ(1700000000, 0)
        CAST(NULL AS TIMESTAMP_LTZ(3))""",
    "interval": """INTERVAL '1' DAY; INTERVAL '2-3' YEAR TO MONTH; INTERVAL '1 02:03:04.567' DAY TO SECOND
        INTERVAL '-5' MONTH; INTERVAL '90' MINUTE""",
    "array": """ARRAY[1, 2, 3]; ARRAY[CAST(NULL AS INT), 2, 2]; ARRAY['b', 'a', 'b']; ARRAY[1.5, 2.25]
        CAST(NULL AS ARRAY<INT>); ARRAY[ARRAY[1, 2], ARRAY[3]]""",
    "map": "MAP['a', 1, 'b', 2]; MAP['b', CAST(NULL AS INT)]; MAP[1, 'x', 2, 'y']; CAST(NULL AS MAP<STRING, INT>)",
    "bytes": "x'0a1b'; x''; CAST('hello' AS BYTES); CAST(NULL AS BYTES)",
    "row": "ROW(1, 'a'); CAST(ROW(1, 'x') AS ROW<i INT, s STRING>); ROW(CAST(NULL AS INT), 2.5)",
}
#: What stands for several kinds, or for words.
GROUPS: Final = {
    "number": ("int", "int", "bigint", "small", "double", "float", "decimal"),
    "string": ("text", "text", "text", "written time", "json", "url", "format"),
    "when": ("date", "time", "timestamp", "instant", "written time"),
    "any": tuple(VALUES),
}
WORDS: Final = {
    "sign": "+ - * / %",
    "than": "= <> < >=",
    "unit": "YEAR QUARTER MONTH WEEK DAY HOUR MINUTE SECOND MILLISECOND DOY DOW ISODOW ISOYEAR CENTURY DECADE",
    "type": """INT BIGINT TINYINT SMALLINT DOUBLE FLOAT DECIMAL(10,2) DECIMAL(5,0) DECIMAL(38,18) STRING CHAR(3)
        VARCHAR(4) BOOLEAN DATE TIME TIMESTAMP(3) TIMESTAMP(0) TIMESTAMP(9) TIMESTAMP_LTZ(3) BYTES BINARY(3)
        ARRAY<STRING> MAP<STRING,STRING>""",
    "edge": "FLOOR CEIL",
    "side": "BOTH LEADING TRAILING",
    "digit": "-2 0 1 3",
    "like": "LIKE SIMILAR~TO NOT~LIKE",
}
FORMS: Final = """CAST({any} AS {type}); TRY_CAST({any} AS {type}); CAST({string} AS {type}); CAST({number} AS {type})
    CAST({when} AS {type}); {number} {sign} {number}; {number} {than} {number}; {when} {than} {when}
    {when} + {interval}; {when} - {interval}; {any} = {any}; {any} IS NOT DISTINCT FROM {any}; -{number}
    EXTRACT({unit} FROM {when}); TIMESTAMPDIFF({unit}, {when}, {when}); TIMESTAMPADD({unit}, {int}, {when})
    {edge}({when} TO {unit}); {edge}({number}); {string} {like} {string}; {string} {like} {pattern}
    POSITION({string} IN {string}); SUBSTRING({string} FROM {int} FOR {int}); {string} || {any}
    OVERLAY({string} PLACING {string} FROM {int} FOR {int}); TRIM({side} {string} FROM {string})
    CASE WHEN {boolean} THEN {any} ELSE {any} END; COALESCE({any}, {any}); NULLIF({any}, {any})
    IF({boolean}, {any}, {any}); IFNULL({any}, {any}); {number} BETWEEN {number} AND {number}
    {number} IN ({number}, {number}); {boolean} AND {boolean}; NOT {boolean} OR {boolean}
    JSON_VALUE({json}, {path}); JSON_QUERY({json}, {path} WITH WRAPPER); JSON_EXISTS({json}, {path})
    JSON_OBJECT({string} VALUE {any}); JSON_ARRAY({any}, {any} NULL ON NULL); {json} IS JSON OBJECT
    {array}[{int}]; {map}[{text}]; ROW({any}, {any}); ARRAY[{any}, {any}]; MAP[{any}, {any}]
    ROW({number}, {string}) = ROW({number}, {string}); ROUND({number}, {digit}); TRUNCATE({number}, {digit})
    DATE_FORMAT({when}, {format}); TO_TIMESTAMP({written time}, {format}); CONVERT_TZ({written time}, {zone}, {zone})
    FROM_UNIXTIME({bigint}, {format}); REGEXP_REPLACE({string}, {pattern}, {string}); SPLIT_INDEX({text}, {text}, {int})
    REGEXP_EXTRACT({string}, {pattern}, {int}); CONV({text}, 10, 16); PRINTF('%d|%s', {int}, {string})"""
#: Which kinds functions like, by a part of their names.
_LIKED: Final = {
    "JSON": ("json", "path", "text", "int"),
    "URL": ("url", "text"),
    "REGEX": ("pattern", "text", "int"),
    "ARRAY": ("array", "int", "text", "boolean"),
    "MAP": ("map", "array", "text"),
    "TIME": ("written time", "format", "zone", "timestamp", "instant", "bigint"),
    "DATE": ("written time", "format", "date", "timestamp", "bigint"),
}
#: What has another answer each time, and what no text can show.
_UNSTEADY: Final = "RAND|UUID|NOW|SLEEP|CURRENT_|LOCAL|PROCTIME|SOURCE_WATERMARK|UNIX_TIMESTAMP|OBJECT_OF|PARSE_JSON"
_NAMES: Final = sorted(
    name for name in SCALAR_FUNCTIONS if re.fullmatch(r"[A-Z][A-Z0-9_]*", name) and not re.search(_UNSTEADY, name)
)


def _parts(text: str) -> list[str]:
    return [one.strip() for one in re.split(r";|\n", text) if one.strip()]


_VALUES: Final = {kind: _parts(text) for kind, text in VALUES.items()}
_FORMS: Final = _parts(FORMS)


def expression(random: Random) -> str:
    """A call or a form."""
    return _filled(random.choice(_FORMS), random) if random.random() < 0.5 else _call(random)


def _filled(form: str, random: Random) -> str:
    return re.sub(r"\{([a-z ]+)\}", lambda hole: _one(hole[1], random), form)


def _one(what: str, random: Random) -> str:
    """A word, or a value of a kind or of one of a group."""
    if what in WORDS:
        return random.choice(WORDS[what].split()).replace("~", " ")
    return random.choice(_VALUES[random.choice(GROUPS.get(what, (what,)))])


def _call(random: Random) -> str:
    name = random.choice(_NAMES)
    liked = next((kinds for part, kinds in _LIKED.items() if part in name), GROUPS["any"])
    kinds: Sequence[str] = liked if random.random() < 0.8 else [random.choice(GROUPS["any"])]
    operands = ", ".join(_one(random.choice(kinds), random) for _ in range(random.choice((1, 1, 2, 2, 3))))
    return f"{name}({operands})".replace("2147483647", "9")  # no text of two billion characters
