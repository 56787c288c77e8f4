SET 'sql-client.execution.result-mode' = 'tableau';
SELECT CAST(NULL AS INT) a, CAST(NULL AS STRING) b, CAST(NULL AS ARRAY<INT>) c, CAST(NULL AS ROW<a INT>) d;
SELECT * FROM (VALUES (1, 'a'), (2, CAST(NULL AS STRING))) AS t (x, y);
SELECT * FROM (VALUES (1)) AS t (x) WHERE x = 0;
