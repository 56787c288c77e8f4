"""Expressions with types: what the analyser makes of expressions as they are written."""
