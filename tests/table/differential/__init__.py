"""Random SQL queries over random tables, in random settings, beside DuckDB.

A case is a world (`worlds`: tables and a query) and two settings (`settings`: how it runs). `tester` runs the query in
the reference setting, which is the plainest one, and in both settings, and compares each result with DuckDB's
(`oracle`). `invariants` also looks at the changes by which a result came about.

| module | concept |
| --- | --- |
| `chance` | random choices that can be replayed |
| `kinds`, `relations`, `dialects` | columns and their values; queries; SQL of Flink and of DuckDB at once |
| `tables` | what arrives, in which order and through which splits, and what is left |
| `expressions`, `aggregates`, `queries` | queries without event time |
| `windows`, `window_queries`, `timed`, `lateness` | queries with event time |
| `worlds`, `settings`, `operators` | a case |
| `memory`, `files`, `streams` | where the tables are |
| `runs`, `outputs`, `plans` | how a query runs and how its results are collected |
| `oracle`, `invariants`, `tester` | what has to hold |
| `shrink`, `report`, `runner`, `__main__` | many cases, and what is shown of those that fail |

Flink, whose semantics Penstock has, and DuckDB differ. Where they do, a query avoids the case or has a form for each of
them, and comparisons stay exact:

- DuckDB has no window functions, OVER of changelogs, temporal joins or watermarks. Queries have DuckDB's own form of
  them: rows joined with the edges of their windows, versions with their ends, and a condition by which late rows are
  dropped. `lateness` computes sessions of late rows.
- An expression compares NaN by IEEE 754, DuckDB by its total order; DuckDB's form asks for NaN. Joins, groups and
  sorting have one equality in both: NaN is equal to itself and the greatest number, and 0.0 is equal to -0.0.
- An aggregate without GROUP BY, or the empty grouping set, has a row without input in batch and DuckDB, and none in a
  stream: such a query has rows, or leaves the row out by HAVING.
- AVG of whole numbers is cut towards zero. Sums of decimals become NULL where they have too many digits.
- `SELECT *` of USING and NATURAL puts the common columns first; DuckDB leaves them in place.
- A map is equal to one with the same entries in another order; DuckDB gets them sorted.
- The order of rows decides nothing: top-N and OVER order by columns that make equal rows of ties. ARRAY_AGG is
  compared by its size, FIRST_VALUE and LAST_VALUE are left out. Only tables with one split are asked for the first or
  last row by arrival, at parallelism 1.
- The sum of doubles is compared where it is exact in any order: 1E17 only passes through tables and is not left in the
  end, and of inexact fractions only the sign of the variance is compared.
- 0.0 and -0.0 inside arrays, equality of NaN by `IS NOT DISTINCT FROM` in an expression, text made of numbers,
  arithmetic that overflows and text that CHAR would pad are left out. So are maps in batch.

Settings differ by their nature in a few points, too, which `settings` and `outputs` name: late rows need one subtask,
and an epoch for each row; rows with NULL in a primary key are dropped; Python's datetime has microseconds, and NumPy's
floats have NaN for NULL.
"""
