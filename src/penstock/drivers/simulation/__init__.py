"""A whole cluster from one seed."""
