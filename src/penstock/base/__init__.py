"""What every layer uses: time, rows and types, options, errors. It imports the standard library and nothing else."""
