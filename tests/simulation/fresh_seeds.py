"""Seeds that no one has run before: another range each day."""

import datetime

FRESH_SEEDS = 500


def fresh_seeds() -> range:
    """Today's."""
    first = datetime.datetime.now(tz=datetime.UTC).date().toordinal() * 1_000
    return range(first, first + FRESH_SEEDS)
