from collections import Counter

from examples.cep.fraud_sequence import charges
from tests.examples.answers.cep.keyed import keyed

WINDOW_MS = 10 * 60_000


def inputs():
    return (charges(),)


def answer(records):
    found: Counter = Counter()
    for card, made in keyed(records, "card").items():
        for place, large in enumerate(made):
            if large.cents <= 40_000:
                continue
            probes: list = []
            for probe in reversed(made[:place]):
                if probe.cents >= 100 or large.time_ms - probe.time_ms >= WINDOW_MS:
                    break
                probes.insert(0, probe)
            if len(probes) >= 2:
                found[card, large.time_ms, tuple(one.cents for one in (*probes, large))] += 1
    return found


def check(results, records):
    assert Counter((card, time_ms, tuple(cents)) for card, time_ms, cents in results) == answer(records)
    assert results
