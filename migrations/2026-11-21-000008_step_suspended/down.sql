ALTER TABLE steps DROP COLUMN suspended_us;
