"""The commands of `penstock`, one a file. Each imports what it needs when it runs, so that all load quickly."""
