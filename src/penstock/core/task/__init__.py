"""Tasks: the mailbox, the operator chain, input gates, result partitions and barrier handling."""
