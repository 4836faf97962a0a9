-- What was submitted. Stored once for equal submissions: an array's tasks share one row.
CREATE TABLE requests (
    request_id INTEGER PRIMARY KEY,
    -- FNV-1a of the body, to find an equal one.
    hash INTEGER NOT NULL,
    -- Copies from the body, for queries.
    name TEXT NOT NULL,
    user TEXT NOT NULL,
    account TEXT,
    -- The request as JSON.
    body TEXT NOT NULL
) STRICT;

CREATE INDEX requests_by_hash ON requests (hash);
CREATE INDEX requests_by_name ON requests (name);

-- The life of each job record. Times are microseconds since 1970 (UTC).
CREATE TABLE jobs (
    job_id INTEGER PRIMARY KEY,
    array_job_id INTEGER,
    array_task_id INTEGER,
    -- The tasks that a compact record stands for: 0-3,7,10-20:5.
    array_tasks TEXT,
    array_limit INTEGER,
    request_id INTEGER NOT NULL REFERENCES requests (request_id),
    partition TEXT NOT NULL,
    cpus INTEGER NOT NULL,
    mem_mb INTEGER NOT NULL,
    gpus INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    hold TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL,
    submit_us INTEGER NOT NULL,
    eligible_us INTEGER,
    start_us INTEGER,
    end_us INTEGER,
    suspended_at_us INTEGER,
    suspended_us INTEGER NOT NULL,
    -- Exit codes are status:signal, as sacct prints them.
    exit_code TEXT NOT NULL,
    derived_exit_code TEXT NOT NULL,
    restarts INTEGER NOT NULL,
    next_step INTEGER NOT NULL,
    -- What it holds (JSON), since its CPUs and GPUs are lists.
    alloc TEXT,
    max_rss_kb INTEGER NOT NULL,
    user_us INTEGER NOT NULL,
    system_us INTEGER NOT NULL,
    -- The process of a salloc or srun (JSON).
    client TEXT,
    cancelled_by INTEGER
) STRICT;

-- Live jobs by their states; ended ones by the time they ended. submit_us lets a window be decided in the index.
CREATE INDEX jobs_by_state ON jobs (state, end_us, submit_us);
CREATE INDEX jobs_by_array ON jobs (array_job_id, array_task_id) WHERE array_job_id IS NOT NULL;
CREATE INDEX jobs_by_request ON jobs (request_id);
