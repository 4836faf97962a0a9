-- The process that asked for the step (JSON): it finds its step again after a restart of the daemon.
ALTER TABLE steps ADD COLUMN client TEXT;
