"""`penstock gateway`: runs the statements of the SQL gateway (`penstock.server.gateway`) in table environments.

| file | contents |
| --- | --- |
| `engine` | the statements of one session, its jobs, and the errors as Flink's classes; the process |
| `values` | columns and values in the two forms of Flink's gateway |
"""
