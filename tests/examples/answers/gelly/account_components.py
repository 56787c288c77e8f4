"""The same by networkx."""

from collections import Counter

import networkx as nx
from examples.gelly.account_components import logins


def inputs():
    return (logins(15, seed=103),)


def answer(known):
    groups = list(nx.connected_components(nx.Graph(known)))
    assert len(groups) == 14
    return Counter((name, min(group)) for group in groups for name in group if name.startswith("account"))
