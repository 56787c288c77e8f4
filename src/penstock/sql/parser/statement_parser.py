"""The parser's entry points, for single statements, scripts of statements separated by semicolons, and paths.

`StatementParser` parses any statement: the first words select the method that parses the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from penstock.sql.parser import statements
from penstock.sql.parser.ddl import AlterParser, Words
from penstock.sql.parser.lexer import Kind
from penstock.sql.parser.statements import Path, Statement
from penstock.sql.parser.syntax import Expression, Query

_DETAILS: Final = ("ESTIMATED_COST", "CHANGELOG_MODE", "JSON_EXECUTION_PLAN", "PLAN_ADVICE")
#: Objects of SHOW statements without FROM or LIKE.
_SHOWN_WHOLE: Final = ("MODULES", "FULL MODULES", "JARS", "JOBS")
_SHOWN_ILIKE: Final = ("CATALOGS", "DATABASES", "FUNCTIONS", "USER FUNCTIONS", "PROCEDURES")
_OTHERS: Final = ("CATALOG", "DATABASE", "MODEL", "CONNECTION")


class StatementParser(AlterParser):
    """See the module docstring."""

    def statement(self) -> Statement:
        """Parse a statement, and leave the tokens after it."""
        at, word = self.token.at, self.token.text
        readers: dict[str, Callable[[int], Statement]] = {
            "INSERT": self._insert,
            "UPSERT": self._insert,
            "CREATE": self._create,
            "REPLACE": self._replace,
            "ALTER": self._alter,
            "DROP": self._drop,
            "USE": self._use,
            "SHOW": self._show,
            "DESCRIBE": self._describe,
            "DESC": self._describe,
            "EXPLAIN": self._explain,
            "EXECUTE": self._execute,
            "COMPILE": self._compile,
            "BEGIN": self._begin,
            "END": self._end,
            "SET": self._set,
            "RESET": self._reset,
            "UPDATE": self._update,
            "DELETE": self._delete,
            "MERGE": self._merge,
            "TRUNCATE": self._truncate,
            "CALL": self._call_procedure,
            "ANALYZE": self._analyze,
            "LOAD": self._load,
            "UNLOAD": self._load,
            "ADD": self._jar,
            "REMOVE": self._jar,
            "STOP": self._stop_job,
            "QUIT": self._shell,
            "EXIT": self._shell,
            "CLEAR": self._shell,
            "HELP": self._shell,
        }
        reader = readers.get(word) if self.token.kind is Kind.WORD else None
        if reader is not None:
            return reader(at)
        if self.token.text not in ("SELECT", "WITH", "VALUES", "VALUE", "TABLE", "("):
            self.fail("expected a statement")
        return statements.QueryStatement(self.query(), at=at)

    # --- rows --------------------------------------------------------------------------------------------------------

    def _insert(self, at: int) -> statements.Insert:
        upserts = self.take().text == "UPSERT"
        overwrites = not upserts and self.accept("OVERWRITE")
        if not overwrites:
            self.expect("INTO")
        path = self.path()
        hints = self.hints()
        partition = self.partition_values() if self.accept("PARTITION") else ()
        columns: tuple[Path, ...] = ()
        if self.sees("(") and self.try_query_ahead() is False:
            columns = tuple(self.in_parentheses(lambda: self.parse_items(self.path)))
        query = self.query()
        conflict = None
        if self.accept("ON", "CONFLICT"):
            self.expect("DO")
            conflict = self.accept_any("DEDUPLICATE", "ERROR", "NOTHING")
            if conflict is None:
                self.fail("expected DEDUPLICATE, ERROR or NOTHING")
        return statements.Insert(path, query, columns, partition, hints, overwrites, upserts, conflict, at=at)

    def try_query_ahead(self) -> bool:
        """Return whether a query begins after the opening parentheses that come next."""
        ahead = 0
        while self.peek(ahead).text == "(":
            ahead += 1
        return self.peek(ahead).kind is Kind.WORD and self.peek(ahead).text in ("SELECT", "WITH", "VALUES", "TABLE")

    def _update(self, at: int) -> Statement:
        self.expect("UPDATE")
        path, hints, alias = self.path(), self.hints(), self._alias()
        self.expect("SET")
        assignments = tuple(self.parse_items(self._assignment))
        return statements.Update(path, assignments, self._where(), alias, hints, at=at)

    def _assignment(self) -> tuple[str, Expression]:
        name = self.name()
        self.expect("=")
        return name, self.expression()

    def _alias(self) -> str | None:
        return self.name() if self.accept("AS") else self.accept_name()

    def _where(self) -> Expression | None:
        return self.expression() if self.accept("WHERE") else None

    def _delete(self, at: int) -> Statement:
        self.expect("DELETE", "FROM")
        path, hints, alias = self.path(), self.hints(), self._alias()
        return statements.Delete(path, self._where(), alias, hints, at=at)

    def _merge(self, at: int) -> Statement:
        self.expect("MERGE", "INTO")
        path, hints, alias = self.path(), self.hints(), self._alias()
        self.expect("USING")
        source = self.relation()
        self.expect("ON")
        condition = self.expression()
        clauses = []
        while self.accept("WHEN"):
            clauses.append(self._merge_clause())
        if not clauses:
            self.fail("expected WHEN MATCHED or WHEN NOT MATCHED")
        return statements.Merge(path, source, condition, tuple(clauses), alias, hints, at=at)

    def _merge_clause(self) -> statements.MergeClause:
        is_not = self.accept("NOT")
        self.expect("MATCHED")
        matches = "NOT MATCHED" if is_not else "MATCHED"
        if is_not and self.accept("BY"):
            side = self.accept_any("SOURCE", "TARGET")
            if side is None:
                self.fail("expected SOURCE or TARGET")
            matches += " BY SOURCE" if side == "SOURCE" else ""
        condition = self.expression() if self.accept("AND") else None
        self.expect("THEN")
        action = self.accept_any("INSERT") if matches == "NOT MATCHED" else self.accept_any("UPDATE", "DELETE")
        if action is None:
            self.fail("expected INSERT" if matches == "NOT MATCHED" else "expected UPDATE or DELETE")
        assignments: tuple[tuple[str, Expression], ...] = ()
        if action == "UPDATE":
            self.expect("SET")
            assignments = () if self.accept("*") else tuple(self.parse_items(self._merge_assignment))
        elif action == "INSERT" and not self.accept("*"):
            names = self.names_in_parentheses() if self.sees("(") else ()
            self.expect("VALUES")
            values = tuple(self.in_parentheses(lambda: self.parse_items(self.expression)))
            if names and len(names) != len(values):
                self.fail(f"expected {len(names)} values")
            assignments = tuple(zip(names or [""] * len(values), values, strict=True))
        return statements.MergeClause(matches, action, condition, assignments)

    def _merge_assignment(self) -> tuple[str, Expression]:
        path = self.path()  # Spark allows the table's name before the column's
        self.expect("=")
        return path[-1], self.expression()

    def _truncate(self, at: int) -> Statement:
        self.expect("TRUNCATE", "TABLE")
        return statements.Truncate(self.path(), at=at)

    def _call_procedure(self, at: int) -> Statement:
        self.expect("CALL")
        begin = self.token.at
        path = self.path()
        if self.sees("(", "*") or (self.sees("(") and self.peek().text in ("DISTINCT", "ALL")):
            self.take()
            self.fail("expected the operands of a procedure")
        return statements.CallProcedure(self.call(path, begin), at=at)

    def _analyze(self, at: int) -> Statement:
        self.expect("ANALYZE", "TABLE")
        path = self.path()
        partition: tuple[tuple[str, Expression | None], ...] = ()
        if self.accept("PARTITION"):
            partition = tuple(self.in_parentheses(lambda: self.parse_items(self._partition_part)))
        self.expect("COMPUTE", "STATISTICS")
        columns: tuple[str, ...] | None = None
        if self.accept("FOR", "ALL", "COLUMNS"):
            columns = ()
        elif self.accept("FOR", "COLUMNS"):
            columns = tuple(self.parse_items(self.name))
        return statements.Analyze(path, partition, columns, at=at)

    def _partition_part(self) -> tuple[str, Expression | None]:
        return self.name(), self.literal() if self.accept("=") else None

    # --- sets, plans, EXPLAIN ----------------------------------------------------------------------------------------

    def _explain(self, at: int) -> Statement:
        self.expect("EXPLAIN")
        details: list[str] = []
        runs = self.accept("ANALYZE")
        if runs and self.accept("JOB"):
            return statements.JobStatement("ANALYZE", self.text(), at=at)
        if not runs and self.accept("PLAN"):
            self.expect("FOR")
        elif not runs and self.sees_any(*_DETAILS):
            details = self.parse_items(self._detail)
            if len(set(details)) < len(details):
                self.refuse(f"EXPLAIN takes each of {', '.join(details)} once, and is wrong", at)
        if self.sees("STATEMENT", "SET") or self.accept("EXECUTE"):
            return statements.Explain(self._executed(), tuple(details), runs, at=at)
        statement = self.statement()
        explained = (statements.QueryStatement, statements.Insert, statements.CreateTable)
        has_query = not isinstance(statement, statements.CreateTable) or statement.query is not None
        if not isinstance(statement, explained) or not has_query:
            self.refuse("EXPLAIN is for queries, INSERT and STATEMENT SET, and not for the statement that begins", at)
        return statements.Explain(statement, tuple(details), runs, at=at)

    def _executed(self) -> Statement:
        """Parse the statement that EXECUTE runs: a query, INSERT or STATEMENT SET."""
        at = self.token.at
        if self.sees("STATEMENT"):
            return self._statement_set(at)
        statement = self.statement()
        if not isinstance(statement, statements.QueryStatement | statements.Insert):
            self.refuse("EXECUTE is for queries, INSERT and STATEMENT SET, and not for the statement that begins", at)
        return statement

    def _detail(self) -> str:
        detail = self.accept_any(*_DETAILS)
        if detail is None:
            self.fail(f"expected one of {', '.join(_DETAILS)}")
        return detail

    def _execute(self, at: int) -> Statement:
        self.expect("EXECUTE")
        if self.accept("PLAN"):
            return statements.ExecutePlan(self.text(), at=at)
        return statements.Execute(self._executed(), at=at)

    def _compile(self, at: int) -> Statement:
        self.expect("COMPILE")
        executes = self.accept("AND", "EXECUTE")
        self.expect("PLAN")
        file = self.text()
        if_not_exists = not executes and self.if_not_exists()
        self.expect("FOR")
        planned = self._statement_set(self.token.at) if self.sees("STATEMENT") else self._planned()
        return statements.ExecutePlan(file, planned, True, executes, if_not_exists, at=at)

    def _planned(self) -> Statement:
        if not self.sees_any("INSERT", "UPSERT"):
            self.fail("expected INSERT or STATEMENT SET")
        return self._insert(self.token.at)

    def _begin(self, at: int) -> Statement:
        self.expect("BEGIN", "STATEMENT", "SET")
        return statements.BeginStatementSet(at=at)

    def _end(self, at: int) -> Statement:
        self.expect("END")
        return statements.EndStatementSet(at=at)

    def _statement_set(self, at: int) -> Statement:
        self.expect("STATEMENT", "SET", "BEGIN")
        inserts = []
        while not self.sees("END"):
            inserts.append(self._insert(self.token.at))
            self.expect(";")
        if not inserts:
            self.fail("expected INSERT")
        self.expect("END")
        return statements.StatementSet(tuple(inserts), at=at)

    # --- CREATE, ALTER, DROP -----------------------------------------------------------------------------------------

    def _create_words(self) -> Words:
        replaces = alters = False
        if self.accept("OR"):
            alters = self.accept("ALTER")
            replaces = not alters
            if replaces:
                self.expect("REPLACE")
        is_temporary = self.accept("TEMPORARY")
        return Words(is_temporary, is_temporary and self.accept("SYSTEM"), replaces, alters)

    def _create(self, at: int) -> Statement:
        self.expect("CREATE")
        words = self._create_words()
        if self.sees("MATERIALIZED", "TABLE"):
            if words.is_temporary or words.replaces:
                self.fail("a materialized table can be neither temporary nor replaced")
            self.index += 2
            return self.create_materialized_table(words, at)
        if words.alters:
            self.fail("expected MATERIALIZED TABLE")
        if self.accept("FUNCTION"):
            return self._create_function(words, at)
        object_type = self.accept_any("CONNECTION") if words.is_system else self.accept_any("TABLE", "VIEW", *_OTHERS)
        if object_type is None:
            self.fail("expected TABLE, VIEW, FUNCTION, CATALOG, DATABASE or MODEL")
        if object_type == "TABLE":
            return self.create_table(words, at)
        return self.create_view(words, at) if object_type == "VIEW" else self._create_other(object_type, words, at)

    def _replace(self, at: int) -> Statement:
        self.expect("REPLACE")
        is_temporary = self.accept("TEMPORARY")
        self.expect("TABLE")
        return self.create_table(Words(is_temporary=is_temporary, replaces=True), at, is_replace=True)

    def _create_function(self, words: Words, at: int) -> Statement:
        if_not_exists = self.if_not_exists()
        path = self.path()
        self.expect("AS")
        target = self.single_text()
        language = self._language()
        begin = self.token.at
        files = tuple(self.parse_items(self._file)) if self.accept("USING") else ()
        if files and language == "PYTHON":
            self.refuse("A function in PYTHON takes no JAR or ARTIFACT, and here begins one", begin)
        options = self.options() if self.accept("WITH") else ()
        return statements.CreateFunction(
            path=path,
            target=target,
            language=language,
            files=files,
            options=options,
            is_temporary=words.is_temporary,
            is_system=words.is_system,
            if_not_exists=if_not_exists,
            at=at,
        )

    def _language(self) -> str | None:
        if not self.accept("LANGUAGE"):
            return None
        language = self.accept_any("PYTHON", "JAVA", "SCALA", "SQL")
        if language is None:
            self.fail("expected PYTHON, JAVA or SCALA")
        return language

    def _file(self) -> tuple[str, str]:
        kind = self.accept_any("JAR", "ARTIFACT")
        if kind is None:
            self.fail("expected JAR or ARTIFACT")
        return kind, self.text()

    def _create_other(self, object_type: str, words: Words, at: int) -> Statement:
        if_not_exists = self.if_not_exists()
        path = (self.name(),) if object_type == "CATALOG" else self.path()
        inputs = self.elements().columns if self.accept("INPUT") else ()
        outputs = self.elements().columns if self.accept("OUTPUT") else ()
        comment = self.comment()
        if object_type == "CONNECTION" and not self.sees("WITH"):
            self.fail("expected WITH and options")
        options = self.options() if self.accept("WITH") else ()
        query: Query | None = self.query() if object_type == "MODEL" and self.accept("AS") else None
        return statements.Create(
            what=object_type,
            path=path,
            options=options,
            comment=comment,
            if_not_exists=if_not_exists,
            is_temporary=words.is_temporary,
            replaces=words.replaces,
            inputs=inputs,
            outputs=outputs,
            query=query,
            at=at,
        )

    def _alter(self, at: int) -> Statement:
        self.expect("ALTER")
        if self.accept("TABLE"):
            return self.alter_table(at, False)
        if self.accept("MATERIALIZED", "TABLE"):
            return self.alter_table(at, True)
        if self.accept("VIEW"):
            return self.alter_view(at)
        is_temporary = self.accept("TEMPORARY")
        is_system = is_temporary and self.accept("SYSTEM")
        if self.accept("FUNCTION"):
            if_exists = self.if_exists()
            path = self.path()
            self.expect("AS")
            return statements.AlterFunction(
                path=path,
                target=self.single_text(),
                language=self._language(),
                is_temporary=is_temporary,
                is_system=is_system,
                if_exists=if_exists,
                at=at,
            )
        object_type = self.accept_any(*_OTHERS)
        if object_type is None:
            self.fail("expected TABLE, VIEW, FUNCTION, CATALOG, DATABASE or MODEL")
        return self.alter_other(object_type, at)

    def _drop(self, at: int) -> Statement:
        self.expect("DROP")
        is_temporary = self.accept("TEMPORARY")
        is_system = self.accept("SYSTEM")
        object_type = "MATERIALIZED TABLE" if not is_temporary and self.accept("MATERIALIZED", "TABLE") else None
        object_type = object_type or self.accept_any("FUNCTION", "CONNECTION")
        if object_type is None and not is_system:
            object_type = self.accept_any("TABLE", "VIEW", *_OTHERS)
        if object_type is None:
            self.fail("expected TABLE, VIEW, FUNCTION, CATALOG, DATABASE or MODEL")
        if_exists = self.if_exists()
        path = self.path()
        behaviour = self.accept_any("RESTRICT", "CASCADE") if object_type == "DATABASE" else None
        return statements.Drop(object_type, path, if_exists, is_temporary, is_system, behaviour, at=at)

    # --- looking around ----------------------------------------------------------------------------------------------

    def _use(self, at: int) -> Statement:
        self.expect("USE")
        if self.accept("CATALOG"):
            return statements.Use("CATALOG", ((self.name(),),), at=at)
        if self.accept("MODULES"):
            return statements.Use("MODULES", tuple((name,) for name in self.parse_items(self.name)), at=at)
        return statements.Use("DATABASE", (self.path(),), at=at)

    def _show(self, at: int) -> Statement:
        self.expect("SHOW")
        if self.accept("CREATE"):
            return self._show_create(at)
        if self.accept("CURRENT"):
            object_type = self.accept_any("CATALOG", "DATABASE")
            if object_type is None:
                self.fail("expected CATALOG or DATABASE")
            return statements.Show(f"CURRENT {object_type}", at=at)
        if self.accept("PARTITIONS"):
            path = self.path()
            partition = self.partition_values() if self.accept("PARTITION") else ()
            return statements.Show("PARTITIONS", path, partition=partition, at=at)
        object_type = self._shown()
        if object_type in _SHOWN_WHOLE:
            return statements.Show(object_type, at=at)
        path = self.path() if object_type != "CATALOGS" and self.accept_any("FROM", "IN") else ()
        if object_type == "COLUMNS" and not path:
            self.fail("expected FROM or IN")
        patterns = ("LIKE", "ILIKE") if object_type in _SHOWN_ILIKE else ("LIKE",)
        is_negated = self.sees("NOT") and self.peek().text in patterns
        if is_negated:
            self.take()
        kind = self.accept_any(*patterns)
        pattern = self.text() if kind else None
        return statements.Show(object_type, path, pattern, kind or "LIKE", is_negated, at=at)

    def _shown(self) -> str:
        for words in (("USER", "FUNCTIONS"), ("FULL", "MODULES"), ("MATERIALIZED", "TABLES")):
            if self.accept(*words):
                return " ".join(words)
        object_type = self.accept_any(
            *("TABLES", "VIEWS", "COLUMNS", "CATALOGS", "DATABASES", "FUNCTIONS", "PROCEDURES", "MODULES", "MODELS"),
            *("JARS", "JOBS", "CONNECTIONS"),
        )
        if object_type is None:
            self.fail("expected what to show, such as TABLES")
        return object_type

    def _show_create(self, at: int) -> Statement:
        object_type = "MATERIALIZED TABLE" if self.accept("MATERIALIZED", "TABLE") else None
        object_type = object_type or self.accept_any("TABLE", "VIEW", *_OTHERS)
        if object_type is None:
            self.fail("expected TABLE, VIEW, CATALOG or MODEL")
        path = (self.name(),) if object_type == "CATALOG" else self.path()
        return statements.Show(f"CREATE {object_type}", path, at=at)

    def _describe(self, at: int) -> Statement:
        is_short = self.take().text == "DESC"
        if self.accept("JOB"):
            return statements.JobStatement("DESCRIBE", self.text(), at=at)
        if not is_short and self.sees_any("SELECT", "VALUES", "VALUE", "WITH", "("):
            return statements.Explain(statements.QueryStatement(self.query(), at=at), at=at)
        for object_type in ("CATALOG", "DATABASE", "FUNCTION", "MODEL", "CONNECTION"):
            if self.accept(object_type):
                return statements.Describe(object_type, *self._described(), at=at)
        if not is_short:
            self.accept("TABLE")
        return statements.Describe("TABLE", *self._described(), at=at)

    def _described(self) -> tuple[Path, bool]:
        is_extended = self.accept("EXTENDED")
        return self.path(), is_extended

    # --- the session -------------------------------------------------------------------------------------------------

    def _set(self, at: int) -> Statement:
        self.expect("SET")
        if self.token.kind is Kind.END:
            return statements.SetOption(at=at)
        key = self._key()
        self.expect("=")
        return statements.SetOption(key, self._value(), at=at)

    def _reset(self, at: int) -> Statement:
        self.expect("RESET")
        key = None if self.token.kind is Kind.END else self._key()
        return statements.SetOption(key, resets=True, at=at)

    def _key(self) -> str:
        return self.text()

    def _value(self) -> str:
        return self.text()

    def _load(self, at: int) -> Statement:
        unloads = self.take().text == "UNLOAD"
        self.expect("MODULE")
        name = self.name()
        options = self.options() if not unloads and self.accept("WITH") else ()
        return statements.LoadModule(name, options, unloads, at=at)

    def _jar(self, at: int) -> Statement:
        removes = self.take().text == "REMOVE"
        self.expect("JAR")
        return statements.JarStatement(self.single_text(), removes, at=at)

    def _stop_job(self, at: int) -> Statement:
        self.expect("STOP", "JOB")
        job_id = self.single_text()
        options: list[str] = []
        for option in ("SAVEPOINT", "DRAIN"):
            if len(options) < 2 and self.accept("WITH", option):
                options.append(option)
            elif not options:
                break
        return statements.JobStatement("STOP", job_id, tuple(options), at=at)

    def _shell(self, at: int) -> Statement:
        return statements.ShellCommand(self.take().text, at=at)


#: longer texts are parsed each time, without caching
_KEPT_CHARACTERS_MAX: Final = 20_000


def parse_statement(sql: str) -> Statement:
    """Parse one statement, optionally terminated by a semicolon. Raises `SqlParserError`.

    Statements are immutable, so repeated texts are parsed once and cached.
    """
    return _kept(sql) if len(sql) <= _KEPT_CHARACTERS_MAX else _statement(sql)


@lru_cache(maxsize=128)
def _kept(sql: str) -> Statement:
    return _statement(sql)


def _statement(sql: str) -> Statement:
    parser = StatementParser(sql)
    statement = parser.statement()
    parser.accept(";")
    parser.finish()
    return statement


def parse_script(sql: str) -> list[Statement]:
    """Parse all statements of a text, separated by semicolons. Raises `SqlParserError`."""
    parser = StatementParser(sql)
    statements = []
    while not parser.has_ended:
        if parser.accept(";"):
            continue
        statements.append(parser.statement())
        if not parser.has_ended:
            parser.expect(";")
    return statements


def parse_path(text: str) -> tuple[str, ...]:
    """Parse a path such as `` catalog.`data base`.table `` into its names.

    Raises `SqlParserError` if it is not a path.
    """
    parser = StatementParser(text)
    path = parser.path()
    parser.finish()
    return path
