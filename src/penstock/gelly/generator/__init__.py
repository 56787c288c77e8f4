"""Graphs of known shapes and random ones, made by all subtasks: `CycleGraph(env, 10).generate()`."""

from penstock.gelly.generator.base import GraphGenerator
from penstock.gelly.generator.grid import CycleGraph, GridGraph, HypercubeGraph, PathGraph
from penstock.gelly.generator.regular import (
    CirculantGraph,
    CompleteGraph,
    EchoGraph,
    EmptyGraph,
    SingletonEdgeGraph,
    StarGraph,
)
from penstock.gelly.generator.rmat import RMatGraph

__all__ = [
    "CirculantGraph",
    "CompleteGraph",
    "CycleGraph",
    "EchoGraph",
    "EmptyGraph",
    "GraphGenerator",
    "GridGraph",
    "HypercubeGraph",
    "PathGraph",
    "RMatGraph",
    "SingletonEdgeGraph",
    "StarGraph",
]
