"""The command line, and its pages."""
