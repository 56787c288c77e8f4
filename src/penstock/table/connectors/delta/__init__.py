"""`delta`: tables of Delta Lake, with the options of Flink's connector where it has them."""
