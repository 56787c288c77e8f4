"""Clusters whose jobs depend on event time going on: sources that end, fall silent, or wait for results."""
