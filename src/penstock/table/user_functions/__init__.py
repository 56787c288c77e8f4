"""Functions of the program: what they are, how they are opened, and how they run on columns."""
