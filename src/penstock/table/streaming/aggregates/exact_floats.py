"""Exact sums of floating-point numbers that support retraction.

A float that is added and retracted leaves no trace: neither a rounding error, nor NaN after an infinity. Flink adds and
subtracts floats, so one infinity, or one number that is much greater than the others, corrupts its sums permanently.

A finite float is a whole number divided by a power of two. A total holds the exact sum of such fractions, and counts
NaN and the infinities separately: (numerator, exponent of the power of two, counts of NaN, inf and -inf). The counts
are an empty tuple while there are none.
"""

from __future__ import annotations

import math
from typing import Any, Final

#: (numerator, exponent, counts of NaN, inf and -inf)
Total = tuple[int, int, tuple[int, ...]]
EMPTY: Final[Total] = (0, 0, ())
#: A count that no number of retractions can bring back to 0.
_PERMANENT: Final = 1 << 62


def changed(total: Total, value: float, sign: int) -> Total:
    """Return a total after adding (`sign` 1) or subtracting (`sign` -1) a value."""
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


def sum_specials(specials: tuple[int, ...]) -> float | None:
    """Return the sum of the non-finite values, or None without any.

    Retractions that came first have negative counts.
    """
    if not specials:
        return None
    nans, positives, negatives = (count > 0 for count in specials)
    if nans or (positives and negatives):
        return math.nan
    return math.inf if positives else -math.inf if negatives else None


def to_float(total: Total, divisor: int = 1) -> float:
    """Return the float nearest to a total divided by a nonzero whole number; an infinity if it is out of range."""
    numerator, exponent, specials = total
    special = sum_specials(specials)
    return ratio(numerator, divisor << exponent) if special is None else special


def ratio(numerator: int, divisor: int) -> float:
    """Return the float nearest to a fraction; an infinity if it is out of range."""
    try:
        return numerator / divisor
    except OverflowError:
        return math.inf if (numerator > 0) == (divisor > 0) else -math.inf


def from_float(value: float) -> Total:
    """Convert a sum that an earlier release stored as a float. NaN and infinities stay: the finite part is lost."""
    total = changed(EMPTY, value, 1)
    return total if math.isfinite(value) else (total[0], total[1], tuple(count * _PERMANENT for count in total[2]))


#: (count, sum, sum of squares, exponent of the sum, counts as in `Total`); the squares have twice the exponent
Moments = tuple[int, int, int, int, tuple[int, ...]]
NO_MOMENTS: Final[Moments] = (0, 0, 0, 0, ())


def moments_changed(moments: Moments, value: float, sign: int) -> Moments:
    """Return the moments after adding (`sign` 1) or subtracting (`sign` -1) a value."""
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
    """Return the variance; None for too few values, or while retractions precede their values."""
    count, total, squares, exponent, specials = moments
    if count <= (1 if is_sample else 0):
        return None
    if sum_specials(specials) is not None:
        return math.nan
    distances = count * squares - total * total
    if distances < 0:
        return None
    return ratio(distances, count * (count - 1 if is_sample else count) << 2 * exponent)


def restore_moments(count: int, mean: float, squares: float) -> Any:
    """Convert the state of an earlier release, the mean and the sum of squared distances from it, to moments."""
    if not (math.isfinite(mean) and math.isfinite(squares)):
        return count, 0, 0, 0, (_PERMANENT, 0, 0)
    part, divisor = mean.as_integer_ratio()
    of_squares, divisor_of_squares = squares.as_integer_ratio()
    exponent = max(divisor.bit_length() - 1, divisor_of_squares.bit_length() // 2)
    shifted = part << exponent - (divisor.bit_length() - 1)
    distances = of_squares << 2 * exponent - (divisor_of_squares.bit_length() - 1)
    return count, count * shifted, count * shifted * shifted + distances, exponent, ()
