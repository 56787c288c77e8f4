"""Every word with every count from one to its last."""

import random
from collections import Counter
from collections.abc import Iterable
from itertools import chain

from examples.word_count import words_of


def inputs():
    chance = random.Random(1)
    words = ["to", "be", "or", "not", "that", "is", "the", "question"]
    return ([" ".join(chance.choices(words, k=8)) for _ in range(300)],)


def answer(lines: Iterable[str]) -> Counter[tuple[str, int]]:
    counts: Counter[str] = Counter()
    told: Counter[tuple[str, int]] = Counter()
    for word in chain.from_iterable(map(words_of, lines)):
        counts[word] += 1
        told[word, counts[word]] += 1
    return told


DIFFERS_IN_BATCH = True


def answer_in_batch(lines: Iterable[str]) -> Counter[tuple[str, int]]:
    """Every word with its last count."""
    last = Counter(word for line in lines for word in words_of(line))
    return Counter(last.items())
