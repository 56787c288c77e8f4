"""Encoding and decoding of values: rows as text and Avro, pickles, batches of rows, classes of the user's script."""
