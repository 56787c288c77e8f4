"""`datagen`: random or sequential rows."""
