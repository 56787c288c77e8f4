"""The building blocks of tables: types, columns, single values, and errors."""
