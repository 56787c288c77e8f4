"""Models of queries: the providers that answer for them, and the measures by which ML_EVALUATE judges them."""
