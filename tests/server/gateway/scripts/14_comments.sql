SET 'sql-client.execution.result-mode' = 'tableau';
-- a comment before
SELECT 1 AS a; -- and one behind
/* a long
   one */ SELECT ';' AS b /* in between */;
SELECT
  1 AS c,

  'two
lines' AS d;
