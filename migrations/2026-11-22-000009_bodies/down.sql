CREATE TABLE old_jobs (
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
    cancelled_by INTEGER,
    system_comment TEXT,
    task_usage TEXT
) STRICT;

INSERT INTO old_jobs
SELECT
    job_id,
    array_job_id,
    array_task_id,
    CASE WHEN array_job_id IS NOT NULL AND array_task_id IS NULL THEN coalesce((
        SELECT group_concat(
            (value ->> '$.first')
            || CASE WHEN value ->> '$.last' = value ->> '$.first' THEN '' ELSE '-' || (value ->> '$.last') END
            || CASE value ->> '$.step' WHEN 1 THEN '' ELSE ':' || (value ->> '$.step') END, ',')
        FROM json_each(coalesce(body -> '$.role.Rest.tasks', body -> '$.role.Part.tasks'))), '') END,
    body ->> '$.role.Rest.limit',
    request_id,
    partition,
    body ->> '$.tres.cpus',
    body ->> '$.tres.mem_mb',
    body ->> '$.tres.gpus',
    body ->> '$.priority',
    coalesce(body ->> '$.hold', 'No'),
    state,
    body ->> '$.run.reason',
    submit_us,
    body ->> '$.run.eligible',
    body ->> '$.run.start',
    end_us,
    body ->> '$.run.suspended_at',
    coalesce(body ->> '$.run.suspended_us', 0),
    coalesce((body ->> '$.run.exit.status') || ':' || (body ->> '$.run.exit.signal'), '0:0'),
    coalesce((body ->> '$.run.derived_exit.status') || ':' || (body ->> '$.run.derived_exit.signal'), '0:0'),
    body ->> '$.run.restarts',
    coalesce(body ->> '$.next_step', 0),
    nullif(body -> '$.run.alloc', 'null'),
    coalesce(body ->> '$.run.usage.max_rss_kb', 0),
    coalesce(body ->> '$.run.usage.user_us', 0),
    coalesce(body ->> '$.run.usage.system_us', 0),
    nullif(body -> '$.client', 'null'),
    body ->> '$.run.cancelled_by',
    body ->> '$.run.system_comment',
    nullif(body -> '$.run.usage.tasks', '{}')
FROM jobs;

CREATE TABLE old_steps (
    job_id INTEGER NOT NULL REFERENCES old_jobs (job_id) ON DELETE CASCADE,
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
    client TEXT,
    task_usage TEXT,
    suspended_us INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (job_id, step)
) STRICT, WITHOUT ROWID;

INSERT INTO old_steps
SELECT
    job_id,
    step,
    body ->> '$.name',
    body ->> '$.ntasks',
    body ->> '$.state',
    body ->> '$.start',
    body ->> '$.end',
    coalesce((body ->> '$.exit.status') || ':' || (body ->> '$.exit.signal'), '0:0'),
    body -> '$.alloc',
    body ->> '$.usage.max_rss_kb',
    body ->> '$.usage.user_us',
    body ->> '$.usage.system_us',
    coalesce(body ->> '$.submit_line', ''),
    body ->> '$.overlap',
    nullif(body -> '$.client', 'null'),
    nullif(body -> '$.usage.tasks', '{}'),
    coalesce(body ->> '$.suspended_us', 0)
FROM steps;

CREATE TABLE old_runs (
    job_id INTEGER NOT NULL REFERENCES old_jobs (job_id) ON DELETE CASCADE,
    -- How often the job had been restarted before it.
    run INTEGER NOT NULL,
    end_us INTEGER NOT NULL,
    -- How it went, with its steps (JSON): it is read as a whole and never changed.
    body TEXT NOT NULL,
    PRIMARY KEY (job_id, run)
) STRICT, WITHOUT ROWID;

INSERT INTO old_runs
SELECT job_id, run, end_us, json_set(
    json_remove(body -> '$.run', '$.restarts'),
    '$.number', run,
    '$.requeued', json(CASE body ->> '$.requeued' WHEN 1 THEN 'true' ELSE 'false' END),
    '$.steps', json(coalesce(body -> '$.steps', '[]')))
FROM runs;

DROP TABLE runs;
DROP TABLE steps;
DROP TABLE jobs;
ALTER TABLE old_jobs RENAME TO jobs;
ALTER TABLE old_steps RENAME TO steps;
ALTER TABLE old_runs RENAME TO runs;

CREATE INDEX jobs_by_state ON jobs (state, end_us, submit_us);
CREATE INDEX jobs_by_array ON jobs (array_job_id, array_task_id) WHERE array_job_id IS NOT NULL;
CREATE INDEX jobs_by_request ON jobs (request_id);
CREATE INDEX runs_by_end ON runs (end_us);
