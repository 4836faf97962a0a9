CREATE INDEX texts_by_hash ON texts (hash);
CREATE INDEX requests_by_hash ON requests (hash);
DROP INDEX jobs_by_end;
DROP INDEX jobs_live;
CREATE INDEX jobs_by_state ON jobs (state, end_us, submit_us);
