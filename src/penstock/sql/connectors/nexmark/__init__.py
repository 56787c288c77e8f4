"""`nexmark`: the auction events of the Nexmark benchmark, generated as columns."""
