"""Values as bytes and back: rows as text and Avro, pickles, batches of rows, classes of the script."""
