-- What slotd has to say about a job: why its launch failed.
ALTER TABLE jobs ADD COLUMN system_comment TEXT;
