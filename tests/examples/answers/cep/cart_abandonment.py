from collections import Counter
from itertools import zip_longest

from examples.cep.cart_abandonment import HOUR_MS, events
from tests.examples.answers.cep.keyed import keyed


def inputs():
    return (events(),)


def answer(records):
    return Counter(
        (visitor, event.article, event.time_ms)
        for visitor, made in keyed(records, "visitor").items()
        for event, following in zip_longest(made, made[1:])
        if event.action == "put" and (following is None or following.time_ms - event.time_ms >= HOUR_MS)
    )
