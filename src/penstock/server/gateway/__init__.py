"""The SQL gateway: Flink's REST form of sessions, statements and pages of results, for Flink's own clients.

| file | contents |
| --- | --- |
| `sessions` | sessions, operations and pages of results: the rules of the protocol, without sockets |
| `routes` | the paths of `v1` to `v4`, bodies and answers |

An `Engine` runs the statements, one for each session (`penstock.cli.gateway`).
"""
