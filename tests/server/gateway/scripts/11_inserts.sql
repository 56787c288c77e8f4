CREATE TABLE s (id BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '10', 'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '10');
CREATE TABLE b (id BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO b SELECT * FROM s;
SET 'table.dml-sync' = 'true';
INSERT INTO b SELECT * FROM s;
