"""What an hour told last, with what came too late for it, is all there was of it."""

from collections import Counter

from examples.late_data import HOUR_MS, deliveries


def inputs():
    return (deliveries(seed=110),)


def check(results, delivered):
    counted: Counter = Counter()
    for lorry, hour, parcels in (record for stream, record in results if stream == 0):
        counted[lorry, hour] = max(counted[lorry, hour], parcels)  # each count of an hour is more than the one before
    late = Counter(record for stream, record in results if stream == 1)
    assert late.total() == 100
    assert late == Counter(delivered[-100:])
    for lorry, moment_ms, parcels in late.elements():
        counted[lorry, moment_ms // HOUR_MS] += parcels
    assert counted == by_hour(delivered)


DIFFERS_IN_BATCH = True


def check_in_batch(results, delivered):
    """Nothing is late, and every hour is told once."""
    assert Counter(results) == Counter((0, (*hour, parcels)) for hour, parcels in by_hour(delivered).items())


def by_hour(delivered):
    everything: Counter = Counter()
    for lorry, moment_ms, parcels in delivered:
        everything[lorry, moment_ms // HOUR_MS] += parcels
    return everything
