"""Observes and controls running jobs: the layer above the drivers and below the API."""
