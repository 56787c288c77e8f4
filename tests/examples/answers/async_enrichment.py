"""The table itself."""

from collections import Counter

from examples.async_enrichment import COUNTRIES, visits


def inputs():
    return (visits(500, seed=127),)


def answer(made):
    return Counter((visitor, page, COUNTRIES[visitor % len(COUNTRIES)]) for visitor, page in made)
