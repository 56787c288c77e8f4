"""Graph algorithms: give one to `Graph.run`."""

from penstock.gelly.library.connected_components import ConnectedComponents
from penstock.gelly.library.page_rank import PageRank, PageRankResult

__all__ = ["ConnectedComponents", "PageRank", "PageRankResult"]
