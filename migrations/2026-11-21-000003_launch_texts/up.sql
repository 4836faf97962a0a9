-- Scripts and environments. Stored once for equal bytes: submissions in a loop share their environment.
CREATE TABLE texts (
    text_id INTEGER PRIMARY KEY,
    -- FNV-1a of the body, to find an equal one.
    hash INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;

CREATE INDEX texts_by_hash ON texts (hash);

-- What the launch of a submission needs. The tasks of an array have no row: they use that of the array's number.
CREATE TABLE launches (
    job_id INTEGER PRIMARY KEY,
    script_id INTEGER NOT NULL REFERENCES texts (text_id),
    -- NULL once the environment was dropped, long after the end of the last job that needed it.
    env_id INTEGER REFERENCES texts (text_id)
) STRICT;

CREATE INDEX launches_by_script ON launches (script_id);
CREATE INDEX launches_by_env ON launches (env_id) WHERE env_id IS NOT NULL;
