"""`penstock sql`: a shell for SQL, from files and at a prompt.

| file | what |
| --- | --- |
| `scanning`, `splitting` | a text that may still be written, as pieces and as statements |
| `shell` | one statement after the other, through a `TableEnvironment` |
| `display`, `results`, `materialized`, `live` | how results look: options, rows, the table they stand for |
| `jobs` | the jobs that the session has started |
| `errors` | what a person reads when a statement fails |
| `scripts`, `terminal`, `prompt` | statements from a file, and from a person |
| `completion`, `names`, `colours` | what may come next, and how text is coloured |
| `command` | the options of the command line |

Only `prompt` and `colours` need prompt-toolkit, so a file of statements runs without it.
"""
