"""Command line and pages."""
