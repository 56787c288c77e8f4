"""Operators of windows: aligned ones, sessions, and the general one with triggers and evictors."""
