SET 'sql-client.execution.result-mode' = 'tableau';
CREATE TABLE s (id BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '3', 'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '3');
SELECT 1 / (id - id) AS a FROM s;
SHOW CURRENT CATALOG;
