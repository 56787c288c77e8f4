"""Where the options come from that a program does not set: `config.yaml`, and what `penstock run` hands over."""
