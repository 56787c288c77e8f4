"""`penstock sql`: an SQL shell, for files and at a prompt.

| file | contents |
| --- | --- |
| `scanning`, `splitting` | text that may be unfinished, as tokens and as statements |
| `shell` | runs one statement after another, through a `TableEnvironment` |
| `display`, `results`, `materialized`, `live` | the display of results: options, rows, the materialized table |
| `jobs` | the jobs that the session has started |
| `errors` | messages for statements that fail |
| `scripts`, `terminal`, `prompt` | statements from a file, and from a user |
| `completion`, `names`, `colours` | completion candidates, and syntax colouring |
| `command` | the options of the command line |

Only `prompt` and `colours` need prompt-toolkit, so a file of statements runs without it.
"""
