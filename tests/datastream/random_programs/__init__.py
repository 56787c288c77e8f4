"""Random programs of the DataStream API beside a plain interpreter of them, see `__main__`."""
