"""What savepoints and checkpoints hold, for `penstock state` and `penstock savepoint show`."""
