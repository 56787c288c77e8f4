"""`datagen`: rows by chance, or in sequence."""
