SET 'sql-client.execution.result-mode' = 'tableau';
SELECT 'x' a, CAST('ab' AS CHAR(5)) b, CAST('text' AS VARCHAR(10)) c, '' d;
SELECT X'00ff' a, CAST(X'0102' AS VARBINARY) b;
SELECT 'tab	and "quotes" and \backslash' a, 'a long text that does not fit into the width of a column' b;
SELECT '名前' a, 'é' b;
