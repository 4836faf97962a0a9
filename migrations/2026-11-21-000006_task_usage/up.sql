-- What the tasks used, each for itself: virtual memory, page faults, reads and writes (JSON). NULL: nothing was measured.
ALTER TABLE jobs ADD COLUMN task_usage TEXT;
ALTER TABLE steps ADD COLUMN task_usage TEXT;
