"""Connected components under the name that Gelly has for them when they are gathered, summed and applied."""

from __future__ import annotations

from penstock.gelly.library.connected_components import ConnectedComponents


class GSAConnectedComponents(ConnectedComponents):
    """Another name of `ConnectedComponents`: both gather values along edges, take the least, and apply it."""
