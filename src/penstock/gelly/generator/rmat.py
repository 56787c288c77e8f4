"""Random graphs whose degrees follow a power law, like many real graphs (R-MAT)."""

from __future__ import annotations

from functools import partial
from typing import Any, Final, Self

import numpy as np

from penstock.base.errors import WrongValueError
from penstock.datastream.data_stream import StreamExecutionEnvironment
from penstock.gelly.asm.checks import flag, number, whole
from penstock.gelly.base.elements import Edge
from penstock.gelly.generator.base import GraphGenerator
from penstock.gelly.graph import Graph

#: Edges in a block. Each block has its own random numbers, whichever subtask draws it.
BLOCK_EDGES: Final = 16_384
_TRIES_MAX: Final = 100


class RMatGraph(GraphGenerator):
    """A random directed graph with self-loops and duplicate edges. Its vertices are the ends of its edges.

    An edge is drawn by splitting the square of possible edges into quarters and choosing one at random, again and
    again, until one edge is left. `Simplify` turns the graph into a simple one. The same seed gives the same graph.

    Args:
        env: the environment of the graph.
        seed: the seed of the random numbers, 0 or more.
        vertex_count: the upper bound of ids, exclusive; 1 or more.
        edge_count: the number of edges, 1 or more.
    """

    def __init__(self, env: StreamExecutionEnvironment, seed: int, vertex_count: int, edge_count: int) -> None:
        super().__init__(env)
        self._seed = whole(self, "seed", seed, 0)
        self._vertices = whole(self, "vertex_count", vertex_count, 1)
        self._edges = whole(self, "edge_count", edge_count, 1)
        self._constants = (0.57, 0.19, 0.19)
        self._noise = 0.0

    def set_constants(self, a: float, b: float, c: float) -> Self:
        """Set the probabilities of three quarters; the fourth has the rest. The defaults are 0.57, 0.19 and 0.19.

        Args:
            a: the quarter with source and target in the lower half.
            b: the quarter with the source in the lower and the target in the upper half.
            c: the quarter with the source in the upper and the target in the lower half.

        Raises:
            ValueError: if their sum is greater than 1.
        """
        constants = [number(self, name, value, at_least=0) for name, value in (("a", a), ("b", b), ("c", c))]
        if sum(constants) > 1:
            raise WrongValueError(f"RMatGraph: the sum of a, b and c must be 1 or less, not {sum(constants)}")
        self._constants = (constants[0], constants[1], constants[2])
        return self

    def set_noise(self, noise_enabled: bool, noise: float) -> Self:
        """Set whether probabilities vary between the choices for an edge, by up to half of `noise` (0 to 2)."""
        strength = number(self, "noise", noise, at_least=0)
        if strength > 2:
            raise WrongValueError(f"RMatGraph: noise must be 2 or less, not {noise}")
        self._noise = strength if flag(self, "noise_enabled", noise_enabled) else 0.0
        return self

    def generate(self) -> Graph:
        """Return the graph."""
        blocks = self._numbers(-(-self._edges // BLOCK_EDGES), "RMatGraph Blocks")
        draw = partial(_block, self._seed, self._vertices, self._edges, self._constants, self._noise)
        return Graph.from_data_stream(self._own(blocks.flat_map(draw)).name("RMatGraph Edges"))


def _block(
    seed: int, vertices: int, edges: int, constants: tuple[float, float, float], noise: float, block: int
) -> list[Edge]:
    chance = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(block,)))
    count = min(BLOCK_EDGES, edges - block * BLOCK_EDGES)
    drawn: list[Any] = []
    tries = 0
    while len(drawn) < count:
        tries += 1
        if tries > _TRIES_MAX and not drawn:
            raise WrongValueError(
                f"RMatGraph: in {tries * BLOCK_EDGES} draws no edge had both ids below {vertices}: raise a, part of "
                "the low ids, or take a power of two as vertex_count"
            )
        sources, targets = _draw(chance, (vertices - 1).bit_length(), BLOCK_EDGES, constants, noise)
        fits = (sources < vertices) & (targets < vertices)
        drawn += zip(sources[fits].tolist(), targets[fits].tolist(), strict=True)
    return [Edge(source, target, None) for source, target in drawn[:count]]


def _draw(chance: Any, bits: int, count: int, constants: tuple[float, float, float], noise: float) -> tuple[Any, Any]:
    """Draw sources and targets bit by bit. Some are too high if the number of vertices is not a power of two."""
    sources, targets = np.zeros(count, np.int64), np.zeros(count, np.int64)
    parts = np.tile(np.array([*constants, 1 - sum(constants)]), (count, 1))
    for _ in range(bits):
        quarter = (chance.random((count, 1)) >= np.cumsum(parts, axis=1)[:, :3]).sum(axis=1)
        sources = sources << 1 | quarter >> 1
        targets = targets << 1 | quarter & 1
        if noise:
            parts *= 1 - noise / 2 + noise * chance.random(parts.shape)
            parts /= parts.sum(axis=1, keepdims=True)
    return sources, targets
