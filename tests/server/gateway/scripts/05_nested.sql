SET 'sql-client.execution.result-mode' = 'tableau';
SELECT ARRAY[1, 2] a, ARRAY['x', CAST(NULL AS STRING)] b;
SELECT MAP['a', 1] a, MAP[1, 'x'] b, MAP['k', X'0a'] c;
SELECT ROW(1, 'x') a, ROW(CAST(1.50 AS DECIMAL(5, 2)), DATE '2020-01-01', X'01') b;
SELECT ARRAY[ROW(1, MAP['a', ARRAY[TIMESTAMP '2020-01-01 00:00:00.5']])] a;
