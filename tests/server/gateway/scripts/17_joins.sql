SET 'sql-client.execution.result-mode' = 'tableau';
CREATE TEMPORARY VIEW l AS SELECT * FROM (VALUES (1, 'a')) AS t (id, name);
CREATE TEMPORARY VIEW r AS SELECT * FROM (VALUES (1, 10)) AS t (id, price);
SELECT l.id, name, price FROM l JOIN r ON l.id = r.id;
SELECT l.id, CAST(price AS STRING) FROM l, r WHERE l.id <> r.id;
