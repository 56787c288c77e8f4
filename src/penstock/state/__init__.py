"""Keyed and operator state: descriptors, key groups, backends, snapshots."""
