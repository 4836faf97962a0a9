-- How long the step stood still while its job was suspended, microseconds.
ALTER TABLE steps ADD COLUMN suspended_us INTEGER NOT NULL DEFAULT 0;
