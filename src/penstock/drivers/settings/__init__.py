"""Sources of options that a program does not set: `config.yaml` and the command line of `penstock run`."""
