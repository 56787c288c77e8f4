SET 'sql-client.execution.result-mode' = 'tableau';
SELECT COUNT(*) c FROM (VALUES (1), (2), (3)) AS t (x);
SELECT y, SUM(x) s FROM (VALUES (1, 'a'), (2, 'b'), (3, 'a')) AS t (x, y) GROUP BY y;
SELECT y FROM (SELECT y, ROW_NUMBER() OVER (PARTITION BY y ORDER BY x DESC) AS n FROM (VALUES (1, 'a'), (2, 'a')) AS t (x, y)) WHERE n = 1;
