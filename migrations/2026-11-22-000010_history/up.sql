-- What is kept of records that were removed: the largest number that one of them had, since numbers are given once.
CREATE TABLE history (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    last_job_id INTEGER NOT NULL
) STRICT;

INSERT INTO history (id, last_job_id) VALUES (1, 0);
