from collections import Counter

from examples.cep.flapping_alarms import signals
from tests.examples.answers.cep.keyed import keyed


def inputs():
    return (signals(),)


def answer(records):
    found: Counter = Counter()
    for alarm, made in keyed(records, "alarm").items():
        free = 0
        for place in range(len(made) - 5):
            six = made[place : place + 6]
            is_flapping = [signal.is_raised for signal in six] == [True, False] * 3
            if place >= free and is_flapping and six[-1].time_ms - six[0].time_ms < 5 * 60_000:
                found[alarm, six[0].time_ms, six[-1].time_ms] += 1
                free = place + 6
    return found
