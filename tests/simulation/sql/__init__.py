"""Histories of clusters whose jobs are SQL plans: `python -m tests.simulation.sql --seeds 1..2000 --jobs 2`."""
