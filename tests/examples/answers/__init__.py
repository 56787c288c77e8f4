"""What each example must give, worked out in plain Python: a module an example, of the same name.

`inputs()` makes what the example's `build` takes; `answer(*inputs)` counts the records that must come out. Where the
example gives several streams, each record stands in a pair with its stream's position.
"""
