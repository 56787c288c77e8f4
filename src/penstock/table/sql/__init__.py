"""Flink SQL: from text to statements.

`parse_statement` parses one statement and `parse_script` a sequence of statements; `to_sql` prints syntax trees. This
package does not know tables or functions: the planner resolves names. The parser is hand-written, so that it accepts
exactly Flink's grammar, with its reserved words and precedences, and reports errors with line and column. It is one
recursive-descent parser, split by subject:

| file | contents |
| --- | --- |
| `lexer` | tokenizer |
| `words` | reserved words |
| `cursor` | the position in the tokens, and errors |
| `syntax`, `relations`, `statements` | syntax trees: expressions, queries, statements |
| `type_parser`, `expression_parser`, `function_parser` | types and expressions |
| `query_parser`, `relation_parser`, `pattern_parser` | queries |
| `table_parser`, `alter_parser`, `statement_parser`, `script` | statements |
| `printing`, `expression_printing`, `query_printing` | syntax trees back to SQL |
"""

from penstock.table.sql import expression_printing, query_printing  # noqa: F401 - they say how nodes are printed
from penstock.table.sql.lexer import SqlParserError
from penstock.table.sql.printing import to_sql
from penstock.table.sql.script import parse_path, parse_script, parse_statement

__all__ = ["SqlParserError", "parse_path", "parse_script", "parse_statement", "to_sql"]
