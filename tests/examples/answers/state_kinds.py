"""Each customer's purchases as a list."""

from collections import Counter, defaultdict

from examples.state_kinds import purchases


def inputs():
    return (purchases(200, seed=112),)


def answer(made):
    of_customers = defaultdict(list)
    for customer, category, cents, _ in made:
        of_customers[customer].append((category, cents))
    summaries: Counter = Counter()
    for customer, bought in of_customers.items():
        amounts = sorted(cents for _, cents in bought)
        spent: Counter = Counter()
        for category, cents in bought:
            spent[category] += cents
        count = len(amounts)
        by_category = tuple(sorted(spent.items()))
        summaries[customer, count, amounts[count // 2], by_category, amounts[-1], sum(amounts) // count] += 1
    return summaries
