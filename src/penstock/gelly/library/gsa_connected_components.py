"""Connected components under Gelly's name for the gather-sum-apply variant."""

from __future__ import annotations

from penstock.gelly.library.connected_components import ConnectedComponents


class GSAConnectedComponents(ConnectedComponents):
    """Another name for `ConnectedComponents`: both gather values along edges, take the smallest, and apply it."""
