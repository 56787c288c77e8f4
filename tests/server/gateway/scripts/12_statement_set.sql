CREATE TABLE s (id BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '10', 'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '10');
CREATE TABLE b (id BIGINT) WITH ('connector' = 'blackhole');
CREATE TABLE c (id BIGINT) WITH ('connector' = 'blackhole');
SET 'table.dml-sync' = 'true';
BEGIN STATEMENT SET;
INSERT INTO b SELECT id FROM s;
INSERT INTO c SELECT id + 1 FROM s;
END;
EXECUTE STATEMENT SET BEGIN INSERT INTO b SELECT id FROM s; INSERT INTO c SELECT id FROM s; END;
