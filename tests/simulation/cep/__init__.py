"""Histories of clusters whose jobs look for patterns: `python -m tests.simulation.cep --seeds 1..2000 --jobs 2`."""
