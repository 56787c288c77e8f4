"""What tables consist of: types, columns, single values, and what can be wrong with them."""
