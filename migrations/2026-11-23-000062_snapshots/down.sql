DROP INDEX requests_by_snapshot;
ALTER TABLE requests DROP COLUMN snapshot;
