"""`delta`: Delta Lake tables, with the same options as Flink's connector where it has them."""
