"""Foundations of graphs: elements, streams, operators in lockstep."""
