SET 'sql-client.execution.result-mode' = 'tableau';
CREATE TABLE s (id BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '12000', 'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '12000');
SELECT id FROM s WHERE id < 6000 OR id > 11990;
