"""Which tests `make test` runs: those that a change can break, and a share of the others.

- The change is what differs between the working tree and the commit of the last full run, which `last_full_run.toml`
  names. `make test-all` writes that file.
- `rooms` is the table from source rooms to test rooms. `imports` adds the tests that import what has changed, through
  however many modules.
- Everything runs if git, the recorded commit or history is missing, if a path changed that no row knows, or if the
  change is in what everything is built on.
- The others take turns by the number of the commit: one file in `FILE_TURNS`, so each runs once in so many commits.
- One in `SLOW_TURNS` of the tests marked `slow` runs, even where everything runs. So do about `NEAR_MOST` more at most,
  whose room the table names for what the last `SLOW_TURNS` commits changed. Since an earlier change, each test of its
  room has had its turn.
- Whoever names a file or a test runs all of it, and `--all` runs everything.
"""
