"""Graph algorithms for `Graph.run`. `undirected` and `directed` hold those specific to a kind of graph."""

from penstock.gelly.library import directed, undirected
from penstock.gelly.library.adamic_adar import AdamicAdar
from penstock.gelly.library.checksum import ChecksumHashCode
from penstock.gelly.library.community_detection import CommunityDetection
from penstock.gelly.library.connected_components import ConnectedComponents
from penstock.gelly.library.gsa_connected_components import GSAConnectedComponents
from penstock.gelly.library.hits import HITS
from penstock.gelly.library.jaccard_index import JaccardIndex
from penstock.gelly.library.label_propagation import LabelPropagation
from penstock.gelly.library.page_rank import PageRank, PageRankResult
from penstock.gelly.library.single_source_shortest_paths import GSASingleSourceShortestPaths, SingleSourceShortestPaths
from penstock.gelly.library.summarization import Summarization
from penstock.gelly.library.triangle_listing import TriangleEnumerator

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
