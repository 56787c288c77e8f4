"""The commands of `penstock`, one module each. Each imports its dependencies when it runs, so all load quickly."""
