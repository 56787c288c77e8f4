"""`nexmark`: the auction events of the Nexmark benchmark, made as columns."""
