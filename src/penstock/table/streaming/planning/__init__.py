"""From a logical plan to transformations."""
