ALTER TABLE steps DROP COLUMN task_usage;
ALTER TABLE jobs DROP COLUMN task_usage;
