"""Graph algorithms for `Graph.run`. `undirected` and `directed` hold those specific to a kind of graph."""

from penstock.gelly.library import directed, undirected
from penstock.gelly.library.clustering import TriangleEnumerator
from penstock.gelly.library.communities import (
    CommunityDetection,
    ConnectedComponents,
    GSAConnectedComponents,
    GSASingleSourceShortestPaths,
    LabelPropagation,
    SingleSourceShortestPaths,
    Summarization,
)
from penstock.gelly.library.link_analysis import HITS, PageRank, PageRankResult
from penstock.gelly.library.metrics import ChecksumHashCode
from penstock.gelly.library.similarity import AdamicAdar, JaccardIndex

__all__ = [
    "HITS",
    "AdamicAdar",
    "ChecksumHashCode",
    "CommunityDetection",
    "ConnectedComponents",
    "GSAConnectedComponents",
    "GSASingleSourceShortestPaths",
    "JaccardIndex",
    "LabelPropagation",
    "PageRank",
    "PageRankResult",
    "SingleSourceShortestPaths",
    "Summarization",
    "TriangleEnumerator",
    "directed",
    "undirected",
]
