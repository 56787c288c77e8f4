"""Small bugs planted one at a time, to see whether the tests find them, see `__main__`."""
