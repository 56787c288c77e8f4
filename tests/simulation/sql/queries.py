"""Queries, each with what it means: a function from the rows of the tables to the rows of the result."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.simulation.sql.evaluation import (
    ID,
    A,
    K,
    ascending,
    descending,
    equal,
    greatest,
    grouped,
    joined,
    known,
    least,
    picked,
    total,
)
from tests.simulation.sql.tables import AFTER, CHANGED, INSERTED, KEYED, UPSERTED, ChangingTable, Row, TableMaker

Tables = Mapping[str, list[Row]]
Answer = Callable[[Tables], Counter[Row]]


@dataclass(frozen=True)
class Query:
    """A query over tables, and its rows."""

    name: str
    sql: str
    tables: tuple[ChangingTable, ...]
    answer: Answer
    #: whether state expires, so that the same key may come twice
    expires: bool = False
    #: whether the changes of a row may come out of order, because they go through subtasks without a key
    is_unordered: bool = False
    #: the process table function that it calls `f`
    function: type | None = None


def groups(chance: random.Random, make: TableMaker) -> Query:
    """Aggregates with DISTINCT and FILTER, kept up as rows come and go."""
    having = chance.choice(("", " HAVING COUNT(*) > 1"))
    sql = (
        "SELECT k, COUNT(*), SUM(a), COUNT(DISTINCT a), MIN(a), MAX(a), SUM(a) FILTER (WHERE a > 0), SUM(DISTINCT a) "
        f"FROM t GROUP BY k{having}"
    )

    def answer(tables: Tables) -> Counter[Row]:
        found: Counter[Row] = Counter()
        for key, rows in grouped(tables["t"], K).items():
            values = known(rows, A)
            distinct, positive = sorted(set(values)), [value for value in values if value > 0]
            if having and len(rows) < 2:
                continue
            ends = least(values), greatest(values)
            found[(*key, len(rows), total(values), len(distinct), *ends, total(positive), total(distinct))] += 1
        return found

    return Query("groups", sql, (make.table("t"),), answer)


def nested(chance: random.Random, make: TableMaker) -> Query:
    """Aggregates of aggregates: each update of the inner one takes back what it said before."""
    sql = "SELECT c, COUNT(*), SUM(s) FROM (SELECT k, COUNT(*) AS c, SUM(a) AS s FROM t GROUP BY k) GROUP BY c"

    def answer(tables: Tables) -> Counter[Row]:
        inner = [(len(rows), total(known(rows, A))) for rows in grouped(tables["t"], K).values()]
        return Counter((*key, len(rows), total(known(rows, 1))) for key, rows in grouped(inner, 0).items())

    return Query("nested", sql, (make.table("t"),), answer)


def distinct(chance: random.Random, make: TableMaker) -> Query:
    """SELECT DISTINCT."""
    return Query(
        "distinct",
        "SELECT DISTINCT k, a FROM t",
        (make.table("t"),),
        lambda tables: Counter(set(picked(tables["t"], K, A))),
    )


def joins(chance: random.Random, make: TableMaker) -> Query:
    """Joins of all kinds, by a column that tells rows apart or by one that does not, perhaps with a condition."""
    kind = chance.choice(("INNER", "LEFT", "RIGHT", "FULL"))
    on = chance.choice(("k", "k", "id"))
    more = chance.choice(("", " AND x.a < y.a"))
    sql = f"SELECT x.id, x.k, x.a, y.id, y.k, y.a FROM t AS x {kind} JOIN u AS y ON x.{on} = y.{on}{more}"
    column = K if on == "k" else ID

    def matches(one: Row, other: Row) -> bool:
        is_less = not more or (one[A] is not None and other[A] is not None and one[A] < other[A])
        return equal(one[column], other[column]) and is_less

    def answer(tables: Tables) -> Counter[Row]:
        return Counter(joined(tables["t"], tables["u"], matches, kind, (3, 3)))

    return Query(f"{kind.lower()} join by {on}", sql, (make.table("t"), make.table("u")), answer)


def half_joins(chance: random.Random, make: TableMaker) -> Query:
    """EXISTS and NOT EXISTS."""
    no = chance.choice(("", "NOT "))
    sql = f"SELECT id, k, a FROM t WHERE {no}EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.a > 0)"

    def answer(tables: Tables) -> Counter[Row]:
        there = {row[K] for row in tables["u"] if row[A] is not None and row[A] > 0} - {None}
        return Counter(row for row in tables["t"] if (row[K] in there) != bool(no))

    return Query(f"{no.lower()}exists", sql, (make.table("t"), make.table("u")), answer)


def joins_of_groups(chance: random.Random, make: TableMaker) -> Query:
    """Joins of sides of which each key has one row, that is replaced."""
    kind = chance.choice(("INNER", "LEFT", "RIGHT", "FULL"))
    sql = (
        f"SELECT x.k, x.c, y.k, y.s FROM (SELECT k, COUNT(*) AS c FROM t GROUP BY k) AS x {kind} JOIN "
        "(SELECT k, SUM(a) AS s FROM u GROUP BY k) AS y ON x.k = y.k"
    )

    def answer(tables: Tables) -> Counter[Row]:
        left = [(*key, len(rows)) for key, rows in grouped(tables["t"], K).items()]
        right = [(*key, total(known(rows, A))) for key, rows in grouped(tables["u"], K).items()]
        return Counter(joined(left, right, lambda one, other: equal(one[0], other[0]), kind, (2, 2)))

    return Query(f"{kind.lower()} join of groups", sql, (make.table("t"), make.table("u")), answer)


def first_rows(chance: random.Random, make: TableMaker) -> Query:
    """The first rows of each key in order, with their numbers or without."""
    end, is_shown = chance.randint(1, 3), chance.random() < 0.5
    sql = (
        f"SELECT id, k, a{', n' if is_shown else ''} FROM (SELECT id, k, a, ROW_NUMBER() OVER (PARTITION BY k "
        f"ORDER BY a DESC, id ASC) AS n FROM t) WHERE n <= {end}"
    )

    def answer(tables: Tables) -> Counter[Row]:
        found: Counter[Row] = Counter()
        for rows in grouped(tables["t"], K).values():
            ordered = sorted(rows, key=lambda row: (descending(row[A]), ascending(row[ID])))[:end]
            found.update((*row, place) if is_shown else row for place, row in enumerate(ordered, 1))
        return found

    kinds = (INSERTED, CHANGED, KEYED, AFTER, UPSERTED)
    return Query("first rows", sql, (make.table("t", kinds),), answer)


def first_groups(chance: random.Random, make: TableMaker) -> Query:
    """The groups with the most rows: each row is replaced by one that is further ahead, or not if rows go."""
    is_shown = chance.random() < 0.5
    sql = (
        f"SELECT g, k, c{', n' if is_shown else ''} FROM (SELECT g, k, c, ROW_NUMBER() OVER (PARTITION BY g "
        "ORDER BY c DESC, k ASC) AS n FROM (SELECT id AS g, k, COUNT(*) AS c FROM t GROUP BY id, k)) WHERE n <= 2"
    )

    def answer(tables: Tables) -> Counter[Row]:
        counted = [(*key, len(rows)) for key, rows in grouped(tables["t"], ID, K).items()]
        found: Counter[Row] = Counter()
        for rows in grouped(counted, 0).values():
            ordered = sorted(rows, key=lambda row: (-row[2], ascending(row[1])))[:2]
            found.update((*row, place) if is_shown else row for place, row in enumerate(ordered, 1))
        return found

    return Query("first groups", sql, (make.table("t", (INSERTED, INSERTED, CHANGED)),), answer)


def normalized(chance: random.Random, make: TableMaker) -> Query:
    """A filter that rows of a table pass at times: the row as it was has to be known."""
    return Query(
        "normalized",
        "SELECT id, a FROM t WHERE a > 0",
        (make.table("t", (AFTER, UPSERTED)),),
        lambda tables: picked([row for row in tables["t"] if row[A] is not None and row[A] > 0], ID, A),
    )


def projected(chance: random.Random, make: TableMaker) -> Query:
    """Rows as they change, through steps without a key."""
    return Query("projected", "SELECT a, id FROM t", (make.table("t"),), lambda tables: picked(tables["t"], A, ID))


def united(chance: random.Random, make: TableMaker) -> Query:
    """Groups over a union."""
    sql = "SELECT k, COUNT(*), SUM(a) FROM (SELECT k, a FROM t UNION ALL SELECT id, a FROM u) GROUP BY k"

    def answer(tables: Tables) -> Counter[Row]:
        rows = [(row[K], row[A]) for row in tables["t"]] + [(row[ID], row[A]) for row in tables["u"]]
        return Counter((*key, len(some), total(known(some, 1))) for key, some in grouped(rows, 0).items())

    return Query("united", sql, (make.table("t"), make.table("u")), answer)


def running(chance: random.Random, make: TableMaker) -> Query:
    """OVER in the order of a column: what comes or goes changes all results behind it."""
    sql = "SELECT id, k, a, SUM(a) OVER (PARTITION BY k ORDER BY a), COUNT(*) OVER (PARTITION BY k ORDER BY a) FROM t"

    def answer(tables: Tables) -> Counter[Row]:
        found: Counter[Row] = Counter()
        for rows in grouped(tables["t"], K).values():
            for row in rows:
                frame = [one for one in rows if ascending(one[A]) <= ascending(row[A])]
                found[(*row, total(known(frame, A)), len(frame))] += 1
        return found

    return Query("running", sql, (make.table("t"),), answer)


def expired(chance: random.Random, make: TableMaker) -> Query:
    """Groups whose state expires: a key that comes again begins anew, and what it gave before is not taken back."""
    table = make.expiring("t")
    if chance.random() < 0.3:
        answer: Answer = lambda tables: picked(tables["t"], K)  # noqa: E731 - its rows are told twice
        return Query("expired distinct", "SELECT DISTINCT k FROM t", (table,), answer, True)
    return Query(
        "expired groups",
        "SELECT k, COUNT(*), SUM(a) FROM t GROUP BY k",
        (table,),
        lambda tables: Counter((row[K], 1, row[A]) for row in tables["t"]),
        True,
    )
