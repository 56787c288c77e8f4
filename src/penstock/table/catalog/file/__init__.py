"""A catalog in files of a directory: see `catalog`."""
