"""Each card's charges in order, with the probes that still count."""

from collections import Counter, defaultdict

from examples.fraud_detection import LARGE_AMOUNT, MEMORY_MS, PROBE_AMOUNT, transactions

from penstock.common import Row


def inputs():
    return (transactions(3_000, seed=101),)


def answer(charges):
    of_cards = defaultdict(list)
    for charge in charges:
        of_cards[charge.card].append(charge)
    alerts: Counter = Counter()
    for of_card in of_cards.values():
        for position, charge in enumerate(of_card):
            probes = 0
            later_ms = charge.time_ms
            for before in reversed(of_card[:position]):
                if before.amount >= PROBE_AMOUNT or later_ms - before.time_ms >= MEMORY_MS:
                    break
                probes += 1
                later_ms = before.time_ms
            if probes >= 2 and charge.amount > LARGE_AMOUNT:
                alerts[Row(card=charge.card, time_ms=charge.time_ms, amount=charge.amount, probes=probes)] += 1
    return alerts
