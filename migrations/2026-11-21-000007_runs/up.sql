-- The earlier runs of jobs that went back to the queue. jobs has the present one.
CREATE TABLE runs (
    job_id INTEGER NOT NULL REFERENCES jobs (job_id) ON DELETE CASCADE,
    -- How often the job had been restarted before it.
    run INTEGER NOT NULL,
    end_us INTEGER NOT NULL,
    -- How it went, with its steps (JSON): it is read as a whole and never changed.
    body TEXT NOT NULL,
    PRIMARY KEY (job_id, run)
) STRICT, WITHOUT ROWID;

CREATE INDEX runs_by_end ON runs (end_us);
