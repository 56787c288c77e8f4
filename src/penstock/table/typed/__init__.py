"""Typed expressions: the analyser's output."""
