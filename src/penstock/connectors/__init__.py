"""Sources and sinks.

Files: `connectors.file.source`, `connectors.file.sink`. Made-up records: `collection`, `number_sequence`, `generator`,
`nexmark`. The client as a sink: `print`, `collect`. The protocols they fill stand in `penstock.core.connector`; under
PyFlink's names they are found in `penstock.datastream.connectors`.
"""
