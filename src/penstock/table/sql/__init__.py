"""SQL as Flink writes it: from text to statements.

`parse_statement` reads one statement and `parse_script` many; `sql_of` writes what they have read. Nothing here knows
a table or a function: what names mean is for the planner to say. The parser is our own, because what it takes is just
what Flink takes, with Flink's reserved words and precedences, and because an error names line and column. It is one
descent, in files by subject:

| file | what |
| --- | --- |
| `lexer` | text to tokens |
| `words` | which words are no names |
| `cursor` | the place in the tokens, and errors |
| `syntax`, `relations`, `statements` | what is read: expressions, queries, statements |
| `type_parser`, `expression_parser`, `function_parser` | types and expressions |
| `query_parser`, `relation_parser`, `pattern_parser` | queries |
| `table_parser`, `alter_parser`, `statement_parser`, `script` | statements |
| `printing`, `expression_printing`, `query_printing` | all of this as SQL again |
"""

from penstock.table.sql import expression_printing, query_printing  # noqa: F401 - they say how nodes are printed
from penstock.table.sql.lexer import SqlParserError
from penstock.table.sql.printing import sql_of
from penstock.table.sql.script import parse_path, parse_script, parse_statement

__all__ = ["SqlParserError", "parse_path", "parse_script", "parse_statement", "sql_of"]
