"""Sources and sinks.

Files: `connectors.file.source`, `connectors.file.sink`. Made-up records: `collection`, `number_sequence`, `generator`,
`nexmark`. The client as a sink: `print`, `collect`. The protocols that they implement are in `penstock.core.connector`;
`penstock.datastream.connectors` has them under PyFlink's names.
"""
