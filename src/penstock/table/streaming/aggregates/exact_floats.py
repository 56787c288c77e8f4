"""Exact sums of floating-point numbers, from which values can be retracted.

A float that is added and taken off again leaves nothing behind: neither a rounding error, nor NaN after an infinity.
Flink adds and subtracts floats, so one infinity, or one number that is much greater than the others, spoils its sums
permanently.

A finite float is a whole number divided by a power of two. A total holds the exact sum of such fractions, and counts
NaN and the infinities beside it. It is (numerator, exponent of the power of two, counts of NaN, inf and -inf), where
the counts are an empty tuple as long as there are none.
"""

from __future__ import annotations

import math
from typing import Any, Final

#: (numerator, exponent, counts of NaN, inf and -inf)
Total = tuple[int, int, tuple[int, ...]]
EMPTY: Final[Total] = (0, 0, ())
#: A count that no number of rows takes back to 0.
_PERMANENT: Final = 1 << 62


def changed(total: Total, value: float, sign: int) -> Total:
    """A total with a value more (`sign` 1) or a value less (`sign` -1)."""
    numerator, exponent, specials = total
    try:
        part, divisor = value.as_integer_ratio()
    except (OverflowError, ValueError):
        return numerator, exponent, _counted(specials, value, sign)
    shift = divisor.bit_length() - 1 - exponent
    if shift > 0:
        numerator <<= shift
        exponent += shift
    elif shift < 0:
        part <<= -shift
    numerator += part if sign > 0 else -part
    return (numerator, exponent, specials) if numerator else (0, 0, specials)


def _counted(specials: tuple[int, ...], value: float, sign: int) -> tuple[int, ...]:
    counts = list(specials or (0, 0, 0))
    counts[0 if math.isnan(value) else 1 if value > 0 else 2] += sign
    return tuple(counts) if any(counts) else ()


def special_of(specials: tuple[int, ...]) -> float | None:
    """The sum of the values that are not finite; None if there are none. A retraction may come before its value."""
    if not specials:
        return None
    nans, positives, negatives = (count > 0 for count in specials)
    if nans or (positives and negatives):
        return math.nan
    return math.inf if positives else -math.inf if negatives else None


def to_float(total: Total, divisor: int = 1) -> float:
    """The float nearest to a total divided by a whole number that is not 0. Beyond all floats it is an infinity."""
    numerator, exponent, specials = total
    special = special_of(specials)
    return ratio(numerator, divisor << exponent) if special is None else special


def ratio(numerator: int, divisor: int) -> float:
    """The float nearest to a fraction. Beyond all floats it is an infinity."""
    try:
        return numerator / divisor
    except OverflowError:
        return math.inf if (numerator > 0) == (divisor > 0) else -math.inf


def from_float(value: float) -> Total:
    """The total for a sum that an earlier release held as a float. NaN and infinities stay: the rest of it is lost."""
    total = changed(EMPTY, value, 1)
    return total if math.isfinite(value) else (total[0], total[1], tuple(count * _PERMANENT for count in total[2]))


#: (sum, sum of squares, count): the exponent of the squares is twice that of the sum
Moments = tuple[int, int, int, int, tuple[int, ...]]
NO_MOMENTS: Final[Moments] = (0, 0, 0, 0, ())


def moments_changed(moments: Moments, value: float, sign: int) -> Moments:
    """(count, sum, sum of squares, exponent of the sum, counts as in `Total`) with a value more or less."""
    count, total, squares, exponent, specials = moments
    count += sign
    try:
        part, divisor = value.as_integer_ratio()
    except (OverflowError, ValueError):
        return count, total, squares, exponent, _counted(specials, value, sign)
    shift = divisor.bit_length() - 1 - exponent
    if shift > 0:
        total <<= shift
        squares <<= 2 * shift
        exponent += shift
    elif shift < 0:
        part <<= -shift
    total += part if sign > 0 else -part
    squares += part * part if sign > 0 else -part * part
    return (count, total, squares, exponent, specials) if squares else (count, total, 0, exponent, specials)


def variance(moments: Moments, is_sample: bool) -> float | None:
    """The variance; None for too few values, and as long as retractions have come before their values."""
    count, total, squares, exponent, specials = moments
    if count <= (1 if is_sample else 0):
        return None
    if special_of(specials) is not None:
        return math.nan
    distances = count * squares - total * total
    if distances < 0:
        return None
    return ratio(distances, count * (count - 1 if is_sample else count) << 2 * exponent)


def moments_from(count: int, mean: float, squares: float) -> Any:
    """The moments for what an earlier release held: the mean, and the sum of squared distances from it."""
    if not (math.isfinite(mean) and math.isfinite(squares)):
        return count, 0, 0, 0, (_PERMANENT, 0, 0)
    part, divisor = mean.as_integer_ratio()
    of_squares, divisor_of_squares = squares.as_integer_ratio()
    exponent = max(divisor.bit_length() - 1, divisor_of_squares.bit_length() // 2)
    shifted = part << exponent - (divisor.bit_length() - 1)
    distances = of_squares << 2 * exponent - (divisor_of_squares.bit_length() - 1)
    return count, count * shifted, count * shifted * shifted + distances, exponent, ()
