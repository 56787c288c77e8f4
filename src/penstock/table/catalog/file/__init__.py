"""A catalog stored in files of a directory: see `catalog`."""
