"""Encoding and decoding of values: rows as text and Avro, pickles, batches of rows, classes of the user's script.

Pickles name classes by module, and the script's classes are in `__main__`, which is another program in a
worker. So the client packs what its `__main__` defines when it submits a job (`cloud`), and a worker's
`__main__` is a module with these definitions while it runs tasks of the job. Plain pickle then finds these
classes like any others, at no cost. One module (`pickling`) pickles what user code has made, with plain pickle
if possible and otherwise with cloudpickle.
"""
