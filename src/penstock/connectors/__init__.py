"""Sources and sinks.

Files: `connectors.file.source`, `connectors.file.sink`. Generated records: `collection`, `number_sequence`,
`generator`, `nexmark`. Output to the client: `print`, `collect`. The interfaces that they implement are in
`penstock.core.connector`; `penstock.datastream.connectors` exports them under PyFlink's names.
"""
