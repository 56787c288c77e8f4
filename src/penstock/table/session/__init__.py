"""What the statements of one environment share: options, what runs plans, and how results are shown."""
