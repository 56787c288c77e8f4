"""ML_PREDICT in streams: its planning rule, its options and its operators."""
