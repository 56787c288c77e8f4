"""Each line read with Python's own JSON; one is damaged when that fails, or when cents are no number."""

import json
from collections import Counter

from examples.dirty_json import lines

from penstock.common import Row


def inputs():
    return (lines(600, seed=111),)


def check(results, texts):
    totals: Counter = Counter()
    rejected: Counter = Counter()
    for text in texts:
        try:
            order = json.loads(text)
            cents = sum(line["quantity"] * line["cents"] for line in order["lines"])
            totals[Row(id=order["id"], city=order["customer"]["city"], cents=int(cents))] += 1
        except ValueError:
            rejected[text] += 1
    assert Counter(record for stream, record in results if stream == 0) == totals
    set_aside = [record for stream, record in results if stream == 1]
    assert Counter(text for text, _ in set_aside) == rejected
    assert all("cannot read JSON" in reason for _, reason in set_aside)
