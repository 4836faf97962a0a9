-- The copy of a work tree that the jobs of a request run in: it goes with the last of them.
ALTER TABLE requests ADD COLUMN snapshot TEXT;
CREATE INDEX requests_by_snapshot ON requests (snapshot) WHERE snapshot IS NOT NULL;
