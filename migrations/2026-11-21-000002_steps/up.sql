-- Launches inside an allocation. step is batch, interactive, or the number of an srun.
CREATE TABLE steps (
    job_id INTEGER NOT NULL REFERENCES jobs (job_id) ON DELETE CASCADE,
    step TEXT NOT NULL,
    name TEXT NOT NULL,
    ntasks INTEGER NOT NULL,
    state TEXT NOT NULL,
    start_us INTEGER NOT NULL,
    end_us INTEGER,
    exit_code TEXT NOT NULL,
    alloc TEXT NOT NULL,
    max_rss_kb INTEGER NOT NULL,
    user_us INTEGER NOT NULL,
    system_us INTEGER NOT NULL,
    submit_line TEXT NOT NULL,
    overlap INTEGER NOT NULL CHECK (overlap IN (0, 1)),
    PRIMARY KEY (job_id, step)
) STRICT, WITHOUT ROWID;
