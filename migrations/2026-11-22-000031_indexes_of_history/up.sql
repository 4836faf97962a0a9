-- A record has a place by its end once it has one: what happens to it before does not touch that index. Those that live
-- are few and have an index of their own.
DROP INDEX jobs_by_state;
CREATE INDEX jobs_live ON jobs (end_us) WHERE end_us IS NULL;
-- state and submit_us let a window be decided in the index.
CREATE INDEX jobs_by_end ON jobs (end_us, state, submit_us) WHERE end_us IS NOT NULL;

-- The program knows those of late by their hashes: an index of hashes costs each submission a page anywhere in it.
DROP INDEX requests_by_hash;
DROP INDEX texts_by_hash;
