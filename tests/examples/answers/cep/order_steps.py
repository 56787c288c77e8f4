from collections import Counter

from examples.cep.order_steps import HOUR_MS, steps
from tests.examples.answers.cep.keyed import keyed


def inputs():
    return (steps(),)


def answer(records):
    """Each order with its hours, in a pair with 0; or the step at which it stands, in a pair with 1."""
    found: Counter = Counter()
    for order, made in keyed(records, "order").items():
        in_time = [row for row in made if row.time_ms - made[0].time_ms < 24 * HOUR_MS]
        if len(in_time) == 3:
            found[0, (order, (made[2].time_ms - made[0].time_ms) // HOUR_MS)] += 1
        else:
            found[1, (order, in_time[-1].step)] += 1
    return found
