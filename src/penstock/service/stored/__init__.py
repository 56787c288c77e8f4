"""The contents of savepoints and checkpoints, for `penstock state` and `penstock savepoint show`."""
