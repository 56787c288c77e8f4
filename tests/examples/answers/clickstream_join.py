"""A dictionary of the clicks, asked for each showing."""

from collections import Counter

from examples.clickstream_join import WAIT_MS, clicks, showings


def inputs():
    shown = showings(1_500, seed=102)
    return shown, clicks(shown, seed=103)


def answer(shown, clicked):
    clicked_at = dict(clicked)
    after = {identity: clicked_at[identity] - at for identity, _, at in shown if identity in clicked_at}
    assert min(after.values()) <= WAIT_MS < max(after.values())
    return Counter(
        (identity, advertisement, after[identity] if after.get(identity, WAIT_MS + 1) <= WAIT_MS else None)
        for identity, advertisement, _ in shown
    )
