"""The set of the messages."""

from collections import Counter

from examples.deduplication import messages


def inputs():
    return (messages(1_000, seed=106),)


def answer(sent):
    assert len(set(sent)) < len(sent)
    return Counter(set(sent))
