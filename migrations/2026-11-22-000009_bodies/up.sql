-- Records, steps and runs are kept as one text (JSON) each, which reads back as what the program has in memory: a new fact
-- of a job needs no column. What statements filter by is a column that SQLite derives from the text.
CREATE TABLE new_jobs (
    job_id INTEGER PRIMARY KEY,
    request_id INTEGER NOT NULL REFERENCES requests (request_id),
    -- The record without its request and its steps, which have tables of their own.
    body TEXT NOT NULL,
    -- Of an array's records the array's number.
    array_job_id INTEGER AS (
        CASE json_type(body, '$.role')
            WHEN 'object' THEN coalesce(body ->> '$.role.Task.array_job', body ->> '$.role.Part.array_job', job_id)
        END
    ) STORED,
    array_task_id INTEGER AS (body ->> '$.role.Task.task') STORED,
    partition TEXT NOT NULL AS (body ->> '$.partition') STORED,
    state TEXT NOT NULL AS (body ->> '$.run.state') STORED,
    submit_us INTEGER NOT NULL AS (body ->> '$.submit') STORED,
    end_us INTEGER AS (body ->> '$.run.end') STORED
) STRICT;

INSERT INTO new_jobs (job_id, request_id, body)
SELECT job_id, request_id, json_object(
    'id', job_id,
    'role', json(CASE
        WHEN array_job_id IS NULL THEN '"None"'
        WHEN array_tasks IS NULL
            THEN json_object('Task', json_object('array_job', array_job_id, 'task', array_task_id))
        WHEN array_job_id = job_id THEN json_object('Rest', json_object('limit', array_limit, 'tasks', json((
            SELECT json_group_array(json_object(
                'first', CAST(value AS INTEGER),
                'last', CAST(substr(value, instr(value, '-') + 1) AS INTEGER),
                'step', CASE instr(value, ':') WHEN 0 THEN 1 ELSE CAST(substr(value, instr(value, ':') + 1) AS INTEGER) END))
            FROM json_each('["' || replace(array_tasks, ',', '","') || '"]')
            WHERE value <> ''))))
        ELSE json_object('Part', json_object('array_job', array_job_id, 'tasks', json((
            SELECT json_group_array(json_object(
                'first', CAST(value AS INTEGER),
                'last', CAST(substr(value, instr(value, '-') + 1) AS INTEGER),
                'step', CASE instr(value, ':') WHEN 0 THEN 1 ELSE CAST(substr(value, instr(value, ':') + 1) AS INTEGER) END))
            FROM json_each('["' || replace(array_tasks, ',', '","') || '"]')
            WHERE value <> ''))))
    END),
    'partition', partition,
    'tres', json_object('cpus', cpus, 'mem_mb', mem_mb, 'gpus', gpus),
    'priority', priority,
    'hold', hold,
    'submit', submit_us,
    'next_step', next_step,
    'client', json(client),
    'run', json_object(
        'state', state,
        'reason', reason,
        'eligible', eligible_us,
        'start', start_us,
        'end', end_us,
        'suspended_at', suspended_at_us,
        'suspended_us', suspended_us,
        'exit', json_object(
            'status', CAST(exit_code AS INTEGER),
            'signal', CAST(substr(exit_code, instr(exit_code, ':') + 1) AS INTEGER)),
        'derived_exit', json_object(
            'status', CAST(derived_exit_code AS INTEGER),
            'signal', CAST(substr(derived_exit_code, instr(derived_exit_code, ':') + 1) AS INTEGER)),
        'restarts', restarts,
        'alloc', json(alloc),
        'usage', json_object(
            'max_rss_kb', max_rss_kb, 'user_us', user_us, 'system_us', system_us,
            'tasks', json(coalesce(task_usage, '{}'))),
        'cancelled_by', cancelled_by,
        'system_comment', system_comment))
FROM jobs;

CREATE TABLE new_steps (
    job_id INTEGER NOT NULL REFERENCES new_jobs (job_id) ON DELETE CASCADE,
    step TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (job_id, step)
) STRICT, WITHOUT ROWID;

INSERT INTO new_steps (job_id, step, body)
SELECT job_id, step, json_object(
    'id', json(CASE step
        WHEN 'batch' THEN '"Batch"'
        WHEN 'interactive' THEN '"Interactive"'
        ELSE json_object('Num', CAST(step AS INTEGER))
    END),
    'name', name,
    'ntasks', ntasks,
    'state', state,
    'start', start_us,
    'end', end_us,
    'exit', json_object(
            'status', CAST(exit_code AS INTEGER),
            'signal', CAST(substr(exit_code, instr(exit_code, ':') + 1) AS INTEGER)),
    'alloc', json(alloc),
    'usage', json_object(
            'max_rss_kb', max_rss_kb, 'user_us', user_us, 'system_us', system_us,
            'tasks', json(coalesce(task_usage, '{}'))),
    'submit_line', submit_line,
    'overlap', json(CASE overlap WHEN 1 THEN 'true' ELSE 'false' END),
    'client', json(client),
    'suspended_us', suspended_us)
FROM steps;

CREATE TABLE new_runs (
    job_id INTEGER NOT NULL REFERENCES new_jobs (job_id) ON DELETE CASCADE,
    -- How often the job had been restarted before it.
    run INTEGER NOT NULL,
    -- How it went, with its steps: it is read as a whole and never changed.
    body TEXT NOT NULL,
    end_us INTEGER AS (body ->> '$.run.end') STORED,
    PRIMARY KEY (job_id, run)
) STRICT, WITHOUT ROWID;

INSERT INTO new_runs (job_id, run, body)
SELECT job_id, run, json_object(
    'requeued', json(CASE body ->> '$.requeued' WHEN 1 THEN 'true' ELSE 'false' END),
    'run', json_set(json_remove(body, '$.number', '$.requeued', '$.steps'), '$.restarts', run),
    'steps', json(coalesce(body -> '$.steps', '[]')))
FROM runs;

DROP TABLE runs;
DROP TABLE steps;
DROP TABLE jobs;
ALTER TABLE new_jobs RENAME TO jobs;
ALTER TABLE new_steps RENAME TO steps;
ALTER TABLE new_runs RENAME TO runs;

-- Live jobs by their states; ended ones by the time they ended. submit_us lets a window be decided in the index.
CREATE INDEX jobs_by_state ON jobs (state, end_us, submit_us);
CREATE INDEX jobs_by_array ON jobs (array_job_id, array_task_id) WHERE array_job_id IS NOT NULL;
CREATE INDEX jobs_by_request ON jobs (request_id);
CREATE INDEX runs_by_end ON runs (end_us);
