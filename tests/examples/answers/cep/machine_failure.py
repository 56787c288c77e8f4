from collections import Counter

from examples.cep.machine_failure import MINUTE_MS, signals
from tests.examples.answers.cep.keyed import keyed


def inputs():
    return (signals(),)


def answer(records):
    found: Counter = Counter()
    for machine, made in keyed(records, "machine").items():
        free = 0
        for place in range(len(made) - 2):
            hot = made[place : place + 3]
            degrees = [signal.degrees for signal in hot]
            end_ms = hot[0].time_ms + 30 * MINUTE_MS
            if place < free or None in degrees or not 90 <= degrees[0] < degrees[1] < degrees[2]:
                continue
            if hot[2].time_ms >= end_ms:
                continue
            if any(one.degrees is None and one.time_ms < end_ms for one in made[place + 3 :]):
                continue
            found[machine, hot[0].time_ms, tuple(degrees)] += 1
            free = place + 3
    return found


def check(results, records):
    assert Counter((machine, time_ms, tuple(degrees)) for machine, time_ms, degrees in results) == answer(records)
    assert results
