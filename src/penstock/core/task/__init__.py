"""Tasks: the mailbox, the operator chain, snapshots; `channels` to other tasks, and `barriers` that cross them."""
