SET 'my.own.key' = 'a value';
RESET 'my.own.key';
SET 'execution.runtime-mode' = 'streaming';
RESET;
SHOW CURRENT DATABASE;
