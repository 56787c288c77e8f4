"""Table formats: how rows are encoded as bytes, in files and in messages, for every connector of either.

A decoder takes many messages and returns columns, the message and the kind of each row, and the messages that
are invalid (`penstock.codecs.serialization.Deserialized`), like the schemas of streams. Files of lines are read
by the same decoders.
"""
