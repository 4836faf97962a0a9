ALTER TABLE jobs DROP COLUMN system_comment;
