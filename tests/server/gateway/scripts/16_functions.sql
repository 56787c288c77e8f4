SET 'sql-client.execution.result-mode' = 'tableau';
SELECT UPPER('x') a, CHAR_LENGTH('abc') b, ABS(-1) c, ROUND(1.255, 2) d, CONCAT('a', 'b') e;
SELECT DATE_FORMAT(TIMESTAMP '2024-01-01 12:00:00', 'yyyy/MM/dd') a, EXTRACT(YEAR FROM DATE '2024-01-01') b, JSON_VALUE('{"a": 1}', '$.a') c;
SELECT CASE WHEN 1 > 2 THEN 'a' ELSE 'b' END a, COALESCE(CAST(NULL AS INT), 5) b, CARDINALITY(ARRAY[1, 2]) c;
