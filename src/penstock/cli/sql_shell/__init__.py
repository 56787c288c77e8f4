"""`penstock sql`: an SQL shell, for files and at a prompt.

| file | contents |
| --- | --- |
| `statements` | text that may be unfinished, as tokens and as statements; messages for statements that fail |
| `shell` | runs statements through a `TableEnvironment`, shows results, keeps the session's jobs |
| `display`, `live` | the shell's options, and the table that a query's changes produce, redrawn at a terminal |
| `prompt` | statements from a user, with colours |
| `completion` | completion candidates |
| `command` | the options of the command line |

Only the prompt needs prompt-toolkit, so a file of statements runs without it.
"""
