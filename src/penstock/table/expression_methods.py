"""Methods of Table API expressions, in one class for each topic.

`Aggregates` also has the methods for OVER windows and the properties of group windows. `Bitmaps` are sets of integers.
`Collections` are arrays, maps, multisets and rows. `Encodings` include digests, IP addresses and URLs. `Json` is for
JSON strings. `Numbers` is for numbers, `Texts` for substrings, formatting and search, and `Times` for temporal values
and intervals.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Final, Self

from penstock.sql.data import types
from penstock.sql.data.errors import ValidationError
from penstock.sql.expressions.builder import Derived, Operand, Unary, build_call, to_node
from penstock.sql.parser import syntax
from penstock.table import expression_operators

#: placeholder calls for window properties, used until the window is known, and the columns that replace them
WINDOW_PARTS: Final = {
    "$START": "window_start",
    "$END": "window_end",
    "$ROWTIME": "window_time",
    "$PROCTIME": "window_time",
}


class Aggregates(Operand):
    """Aggregate methods."""

    count = Unary("COUNT", "The number of rows whose value is not NULL.")
    sum = Unary("SUM", "The sum, or NULL for zero values.")
    sum0 = Unary("SUM0", "The sum, or 0 for zero values.")
    avg = Unary("AVG", "The average.")
    min = Unary("MIN", "The minimum.")
    max = Unary("MAX", "The maximum.")
    first_value = Unary("FIRST_VALUE", "The first value that is not NULL.")
    last_value = Unary("LAST_VALUE", "The last value that is not NULL.")
    stddev_pop = Unary("STDDEV_POP", "The population standard deviation.")
    stddev_samp = Unary("STDDEV_SAMP", "The sample standard deviation.")
    var_pop = Unary("VAR_POP", "The population variance.")
    var_samp = Unary("VAR_SAMP", "The sample variance.")
    collect = Unary("COLLECT", "A multiset of all values.")
    array_agg = Unary("ARRAY_AGG", "An array of all values.")

    def list_agg(self, separator: object | None = None) -> Self:
        """Concatenate all strings with a separator, by default a comma."""
        return self._called("LISTAGG", separator)

    def percentile(self, percentage: object, frequency: object | None = None) -> Self:
        """Return the percentile at a percentage from 0 to 1. `frequency`: how often each value counts."""
        return self._called("PERCENTILE", percentage, frequency)

    @property
    def distinct(self) -> Self:
        """The aggregate over distinct values only: `col("a").sum.distinct`."""
        if not isinstance(self._node, syntax.Call):
            raise ValidationError(f"distinct belongs to an aggregate, such as {self}.count.distinct")
        return self._new(replace(self._node, is_distinct=True))

    def over(self, alias: object) -> Self:
        """Compute the aggregate over a window of `over_window`, given by its name."""
        name = to_node(alias)
        if not isinstance(name, syntax.Reference):
            raise ValidationError(f'over takes the name of a window, as col("w"), and not {alias}')
        return self._new(syntax.Over(self._node, name.path[-1]))

    # --- a window ----------------------------------------------------------------------------------------------------

    start = Unary("$START", "The start of the group window, inclusive.")
    end = Unary("$END", "The end of the group window, exclusive.")
    rowtime = Unary("$ROWTIME", "The event time of the window, its last millisecond, as a time attribute.")
    proctime = Unary("$PROCTIME", "The processing time of the window as a time attribute.")


class Bitmaps(Operand):
    """Bitmap methods."""

    def bitmap_build(self) -> Self:
        """Return a bitmap of an array's numbers."""
        return self._called("BITMAP_BUILD")

    def bitmap_from_bytes(self) -> Self:
        """Deserialize a bitmap from bytes."""
        return self._called("BITMAP_FROM_BYTES")

    def bitmap_to_bytes(self) -> Self:
        """Serialize the bitmap to bytes."""
        return self._called("BITMAP_TO_BYTES")

    def bitmap_to_array(self) -> Self:
        """Return the sorted numbers as an array."""
        return self._called("BITMAP_TO_ARRAY")

    def bitmap_to_string(self) -> Self:
        """Return the sorted numbers as a string."""
        return self._called("BITMAP_TO_STRING")

    def bitmap_cardinality(self) -> Self:
        """Return how many numbers the bitmap has."""
        return self._called("BITMAP_CARDINALITY")

    def bitmap_and(self, bitmap2: object) -> Self:
        """Return the numbers in both bitmaps."""
        return self._called("BITMAP_AND", bitmap2)

    def bitmap_or(self, bitmap2: object) -> Self:
        """Return the numbers in either bitmap."""
        return self._called("BITMAP_OR", bitmap2)

    def bitmap_xor(self, bitmap2: object) -> Self:
        """Return the numbers in exactly one of the two bitmaps."""
        return self._called("BITMAP_XOR", bitmap2)

    def bitmap_andnot(self, bitmap2: object) -> Self:
        """Return the numbers that are not in the other bitmap."""
        return self._called("BITMAP_ANDNOT", bitmap2)

    # --- over many rows ----------------------------------------------------------------------------------------------

    def bitmap_build_agg(self) -> Self:
        """Return a bitmap of the numbers of all rows."""
        return self._called("BITMAP_BUILD_AGG")

    def bitmap_build_cardinality_agg(self) -> Self:
        """Return how many distinct numbers all rows have."""
        return self._called("BITMAP_BUILD_CARDINALITY_AGG")

    def bitmap_and_agg(self) -> Self:
        """Return the numbers that are in the bitmaps of all rows."""
        return self._called("BITMAP_AND_AGG")

    def bitmap_and_cardinality_agg(self) -> Self:
        """Return how many numbers are in the bitmaps of all rows."""
        return self._called("BITMAP_AND_CARDINALITY_AGG")

    def bitmap_or_agg(self) -> Self:
        """Return the numbers that are in the bitmap of any row."""
        return self._called("BITMAP_OR_AGG")

    def bitmap_or_cardinality_agg(self) -> Self:
        """Return how many numbers are in the bitmap of any row."""
        return self._called("BITMAP_OR_CARDINALITY_AGG")

    def bitmap_xor_agg(self) -> Self:
        """Return the numbers that are in the bitmaps of an odd number of rows."""
        return self._called("BITMAP_XOR_AGG")

    def bitmap_xor_cardinality_agg(self) -> Self:
        """Return how many numbers are in the bitmaps of an odd number of rows."""
        return self._called("BITMAP_XOR_CARDINALITY_AGG")


class Collections(Operand):
    """Methods of arrays, maps, multisets and rows. Array indexes count from 1."""

    cardinality = Unary("CARDINALITY", "The number of elements or entries.")
    element = Unary("ELEMENT", "The only element, or NULL if the collection is empty; more than one is an error.")
    map_keys = Unary("MAP_KEYS", "The keys of the map as an array.")
    map_values = Unary("MAP_VALUES", "The values of the map as an array.")
    map_entries = Unary("MAP_ENTRIES", "The entries of the map as an array of rows.")

    def at(self, index: object) -> Self:
        """Return an array element by its index, or a map value by its key."""
        return self._new(syntax.Item(self._node, to_node(index)))

    def __getitem__(self, index: object) -> Self:
        return self.at(index)

    def get(self, name_or_index: str | int) -> Self:
        """Return a field of a row by its name or its index, counted from 0."""
        if isinstance(name_or_index, int):
            return self.at(name_or_index + 1)
        return self._new(syntax.FieldAccess(self._node, name_or_index))

    @property
    def flatten(self) -> Self:
        """All fields of a row as columns of their own. Only allowed among the selected columns."""
        return self._new(syntax.FieldAccess(self._node, "*"))

    # --- arrays ------------------------------------------------------------------------------------------------------

    def array_append(self, addition: object) -> Self:
        """Append an element to the array."""
        return self._called("ARRAY_APPEND", Operand(to_node(addition)))

    def array_prepend(self, addition: object) -> Self:
        """Prepend an element to the array."""
        return self._called("ARRAY_PREPEND", Operand(to_node(addition)))

    def array_concat(self, *arrays: object) -> Self:
        """Concatenate arrays to the array."""
        return self._called("ARRAY_CONCAT", *arrays)

    def array_contains(self, needle: object) -> Self:
        """Return whether the array contains an element."""
        return self._called("ARRAY_CONTAINS", Operand(to_node(needle)))

    def array_distinct(self) -> Self:
        """Return the distinct elements."""
        return self._called("ARRAY_DISTINCT")

    def array_except(self, array: object) -> Self:
        """Return the elements that are not in another array."""
        return self._called("ARRAY_EXCEPT", array)

    def array_intersect(self, array: object) -> Self:
        """Return the elements that are also in another array."""
        return self._called("ARRAY_INTERSECT", array)

    def array_union(self, array: object) -> Self:
        """Return the distinct elements of both arrays."""
        return self._called("ARRAY_UNION", array)

    def array_join(self, delimiter: object, null_replacement: object | None = None) -> Self:
        """Join the elements with a delimiter. NULL is omitted unless a replacement is given."""
        return self._called("ARRAY_JOIN", delimiter, null_replacement)

    def array_max(self) -> Self:
        """Return the greatest element."""
        return self._called("ARRAY_MAX")

    def array_min(self) -> Self:
        """Return the least element."""
        return self._called("ARRAY_MIN")

    def array_position(self, needle: object) -> Self:
        """Return the index of an element, or 0."""
        return self._called("ARRAY_POSITION", Operand(to_node(needle)))

    def array_remove(self, needle: object) -> Self:
        """Remove all elements equal to a value."""
        return self._called("ARRAY_REMOVE", Operand(to_node(needle)))

    def array_reverse(self) -> Self:
        """Reverse the array."""
        return self._called("ARRAY_REVERSE")

    def array_slice(self, start_offset: object, end_offset: object | None = None) -> Self:
        """Return the elements from one index to another (inclusive), by default to the end."""
        return self._called("ARRAY_SLICE", start_offset, end_offset)

    def array_sort(self, ascending_order: object | None = None, null_first: object | None = None) -> Self:
        """Sort the elements, by default in ascending order. NULL defaults to first if ascending and last otherwise."""
        if null_first is not None and ascending_order is None:
            ascending_order = True
        return self._called("ARRAY_SORT", ascending_order, null_first)

    # --- maps and objects --------------------------------------------------------------------------------------------

    def map_union(self, *maps: object) -> Self:
        """Merge maps. For equal keys the last map wins."""
        return self._called("MAP_UNION", *maps)

    def object_update(self, *kv: object) -> Self:
        """Set fields of the object, given as alternating names and values."""
        return self._called("OBJECT_UPDATE", *(Operand(to_node(value)) for value in kv))


class Encodings(Operand):
    """Methods that encode and decode strings and bytes."""

    from_base64 = Unary("FROM_BASE64", "The string decoded from Base64.")
    to_base64 = Unary("TO_BASE64", "The string encoded in Base64.")
    md5 = Unary("MD5", "The MD5 digest, in 32 hexadecimal digits.")
    sha1 = Unary("SHA1", "The SHA-1 digest, in 40 hexadecimal digits.")
    sha224 = Unary("SHA224", "The SHA-224 digest, in 56 hexadecimal digits.")
    sha256 = Unary("SHA256", "The SHA-256 digest, in 64 hexadecimal digits.")
    sha384 = Unary("SHA384", "The SHA-384 digest, in 96 hexadecimal digits.")
    sha512 = Unary("SHA512", "The SHA-512 digest, in 128 hexadecimal digits.")

    def sha2(self, hash_length: object) -> Self:
        """Return an SHA-2 digest of 224, 256, 384 or 512 bits, in hexadecimal digits."""
        return self._called("SHA2", hash_length)

    def encode(self, charset: object) -> Self:
        """Encode the string to bytes in a charset such as UTF-8."""
        return self._called("ENCODE", charset)

    def decode(self, charset: object) -> Self:
        """Decode the bytes to a string in a charset such as UTF-8."""
        return self._called("DECODE", charset)

    def inet_aton(self) -> Self:
        """Convert an IPv4 address to a number."""
        return self._called("INET_ATON")

    def inet_ntoa(self) -> Self:
        """Convert a number to an IPv4 address."""
        return self._called("INET_NTOA")

    def url_encode(self) -> Self:
        """Encode the string for a URL."""
        return self._called("URL_ENCODE")

    def url_decode(self) -> Self:
        """Decode a URL-encoded string."""
        return self._called("URL_DECODE")

    def parse_url(self, part_to_extract: object, key: object | None = None) -> Self:
        """Extract a part of a URL, such as HOST, PATH or QUERY; with QUERY, optionally the value of a key."""
        return self._called("PARSE_URL", part_to_extract, key)


_STRING: Final = types.VarCharType(types.LENGTH_MAX)


class Json(Operand):
    """JSON methods. Paths have SQL's syntax: `$.name`, `$[0]`."""

    def is_json(self, json_type: expression_operators.JsonType | None = None) -> Self:
        """Return whether the string is JSON, optionally of a given type."""
        return self._operated("IS JSON" if json_type is None else f"IS JSON {json_type.value}")

    def json_exists(self, path: object, on_error: expression_operators.JsonExistsOnError | None = None) -> Self:
        """Return whether a path finds a value. By default, FALSE if the path fails."""
        options = () if on_error is None else (f"{on_error.value} ON ERROR",)
        return self._called("JSON_EXISTS", path, options=options)

    def json_value(
        self,
        path: object,
        returning_type: types.DataType = _STRING,
        on_empty: expression_operators.JsonValueOnEmptyOrError = expression_operators.JsonValueOnEmptyOrError.NULL,
        default_on_empty: object = None,
        on_error: expression_operators.JsonValueOnEmptyOrError = expression_operators.JsonValueOnEmptyOrError.NULL,
        default_on_error: object = None,
    ) -> Self:
        """Return the single value that a path finds. Defaults require DEFAULT as the behaviour on empty or error."""
        operands = [path]
        events = ((on_empty, default_on_empty, "EMPTY"), (on_error, default_on_error, "ERROR"))
        for behaviour, default, event in events:
            if behaviour is expression_operators.JsonValueOnEmptyOrError.DEFAULT:
                operands.append(default)
            elif default is not None:
                raise ValidationError(
                    f"json_value has a default and {behaviour.value} ON {event}: take JsonValueOnEmptyOrError.DEFAULT"
                )
        options = tuple(f"{behaviour.value} ON {event}" for behaviour, _, event in events)
        return self._new(build_call("JSON_VALUE", self, *operands, options=options, returns=returning_type))

    def json_query(
        self,
        path: object,
        wrapping_behavior: expression_operators.JsonQueryWrapper = expression_operators.JsonQueryWrapper.WITHOUT_ARRAY,
        on_empty: expression_operators.JsonQueryOnEmptyOrError = expression_operators.JsonQueryOnEmptyOrError.NULL,
        on_error: expression_operators.JsonQueryOnEmptyOrError = expression_operators.JsonQueryOnEmptyOrError.NULL,
    ) -> Self:
        """Return the object or array that a path finds, as JSON."""
        options = (wrapping_behavior.value, f"{on_empty.value} ON EMPTY", f"{on_error.value} ON ERROR")
        return self._called("JSON_QUERY", path, options=options)

    def json_quote(self) -> Self:
        """Quote the string as a JSON string."""
        return self._called("JSON_QUOTE")

    def json_unquote(self) -> Self:
        """Return the value of a JSON string."""
        return self._called("JSON_UNQUOTE")


class Numbers(Operand):
    """Numeric methods."""

    abs = Unary("ABS", "The absolute value.")
    exp = Unary("EXP", "e raised to the power of the number.")
    ln = Unary("LN", "The natural logarithm.")
    log2 = Unary("LOG2", "The base-2 logarithm.")
    log10 = Unary("LOG10", "The base-10 logarithm.")
    sqrt = Unary("SQRT", "The square root.")
    sign = Unary("SIGN", "The sign of the number: -1, 0 or 1.")
    sin = Unary("SIN", "The sine of an angle in radians.")
    cos = Unary("COS", "The cosine of an angle in radians.")
    tan = Unary("TAN", "The tangent of an angle in radians.")
    cot = Unary("COT", "The cotangent of an angle in radians.")
    sinh = Unary("SINH", "The hyperbolic sine.")
    cosh = Unary("COSH", "The hyperbolic cosine.")
    tanh = Unary("TANH", "The hyperbolic tangent.")
    asin = Unary("ASIN", "The arc sine, in radians.")
    acos = Unary("ACOS", "The arc cosine, in radians.")
    atan = Unary("ATAN", "The arc tangent, in radians.")
    degrees = Unary("DEGREES", "The angle in degrees, converted from radians.")
    radians = Unary("RADIANS", "The angle in radians, converted from degrees.")
    bin = Unary("BIN", "The integer in binary digits.")
    hex = Unary("HEX", "The integer or string in hexadecimal digits.")
    unhex = Unary("UNHEX", "The bytes decoded from hexadecimal digits.")

    def log(self, base: object | None = None) -> Self:
        """Return the logarithm to a base, by default e."""
        return self._called("LOG") if base is None else self._new(to_node(base))._called("LOG", self)

    def round(self, places: object) -> Self:
        """Round to `places` decimal places.

        Args:
            places: the number of digits after the decimal point; a negative number rounds to tens, hundreds and so on.

        Examples:
            >>> list(orders.select((col("cups") * 1.25).round(1)).execute().collect())
            [<Row(2.5)>, <Row(1.3)>]
        """
        return self._called("ROUND", places)

    def truncate(self, n: object = 0) -> Self:
        """Truncate to `n` decimal places."""
        return self._called("TRUNCATE", n)

    def floor(self, time_interval_unit: expression_operators.TimeIntervalUnit | None = None) -> Self:
        """Round down to an integer, or a temporal value to the start of its unit."""
        return self._called("FLOOR", _unit(time_interval_unit))

    def ceil(self, time_interval_unit: expression_operators.TimeIntervalUnit | None = None) -> Self:
        """Round up to an integer, or a temporal value to the end of its unit."""
        return self._called("CEIL", _unit(time_interval_unit))


def _unit(unit: expression_operators.TimeIntervalUnit | None) -> Operand | None:
    return None if unit is None else Operand(syntax.Unit(unit.value))


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
        """Concatenate another string to the string.

        Examples:
            >>> list(orders.select(col("drink").concat("!")).execute().collect())
            [<Row('tea!')>, <Row('rum!')>]
        """
        return self._called("CONCAT", other)

    # --- parts -------------------------------------------------------------------------------------------------------

    def substring(self, begin_index: object, length: object | None = None) -> Self:
        """Return the substring from a position, at most `length` characters if given.

        Args:
            begin_index: the position of the first character, counted from 1.
            length: the number of characters; None for all up to the end.

        Examples:
            >>> list(orders.select(col("drink").substring(1, 2)).execute().collect())
            [<Row('te')>, <Row('ru')>]
        """
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
        """Trim spaces, or these characters, at both ends.

        Examples:
            >>> from penstock.table.expressions import lit
            >>> list(orders.select(lit("  tea  ").trim()).limit(1).execute().collect())
            [<Row('tea')>]
        """
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
        """Replace all occurrences of a substring.

        Examples:
            >>> list(orders.select(col("drink").replace("tea", "mate")).execute().collect())
            [<Row('mate')>, <Row('rum')>]
        """
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
        """Return whether the string matches a pattern: `%` matches any characters and `_` matches one.

        Examples:
            >>> list(orders.where(col("drink").like("t%")).execute().collect())
            [<Row('tea', 2)>]
        """
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


_UNITS: Final = {
    "YEAR": syntax.IntervalQualifier(types.IntervalResolution.YEAR),
    "QUARTER": syntax.IntervalQualifier(types.IntervalResolution.MONTH, times=3),
    "MONTH": syntax.IntervalQualifier(types.IntervalResolution.MONTH),
    "WEEK": syntax.IntervalQualifier(types.IntervalResolution.DAY, times=7),
    "DAY": syntax.IntervalQualifier(types.IntervalResolution.DAY),
    "HOUR": syntax.IntervalQualifier(types.IntervalResolution.HOUR),
    "MINUTE": syntax.IntervalQualifier(types.IntervalResolution.MINUTE),
    "SECOND": syntax.IntervalQualifier(types.IntervalResolution.SECOND),
    "MILLI": syntax.IntervalQualifier(types.IntervalResolution.SECOND),
}


class _Interval(Derived):
    """A property that converts a number to an interval of a unit."""

    def __init__(self, unit: str) -> None:
        words = "milliseconds" if unit == "MILLI" else f"{unit.lower()}s"
        super().__init__(
            lambda operand: operand._new(interval(operand._node, unit)), f"The number of {words} as an interval."
        )


def interval(node: syntax.Expression, unit: str) -> syntax.Expression:
    """Return an interval of `node` units: a literal if `node` is one, otherwise a product."""
    number, is_negative = node, False
    if isinstance(node, syntax.Call) and node.name == "MINUS_PREFIX":
        number, is_negative = node.operands[0], True
    if isinstance(number, syntax.NumberLiteral) and number.text.isdigit():
        text = str(Decimal(number.text) / 1000) if unit == "MILLI" else number.text
        return syntax.IntervalLiteral(text, _UNITS[unit], is_negative)
    unit_literal = syntax.IntervalLiteral("0.001" if unit == "MILLI" else "1", _UNITS[unit])
    return syntax.Call("*", (node, unit_literal))


class Times(Operand):
    """Temporal methods, and intervals of numbers: `lit(10).minutes`."""

    year = years = _Interval("YEAR")
    quarter = quarters = _Interval("QUARTER")
    month = months = _Interval("MONTH")
    week = weeks = _Interval("WEEK")
    day = days = _Interval("DAY")
    hour = hours = _Interval("HOUR")
    minute = minutes = _Interval("MINUTE")
    second = seconds = _Interval("SECOND")
    milli = millis = _Interval("MILLI")

    def extract(self, time_interval_unit: expression_operators.TimeIntervalUnit) -> Self:
        """Extract a part of a temporal value or an interval as an integer."""
        return self._new(syntax.Call("EXTRACT", (syntax.Unit(time_interval_unit.value), self._node), ("EXTRACT",)))

    @property
    def to_date(self) -> Self:
        """The date in a string such as `2020-01-31`."""
        return self._new(syntax.Cast(self._node, types.DateType()))

    @property
    def to_time(self) -> Self:
        """The time of day in a string such as `12:34:56`."""
        return self._new(syntax.Cast(self._node, types.TimeType()))

    @property
    def to_timestamp(self) -> Self:
        """The timestamp in a string such as `2020-01-31 12:34:56`, with millisecond precision."""
        return self._new(syntax.Cast(self._node, types.TimestampType(3)))
