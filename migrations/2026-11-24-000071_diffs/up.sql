-- The differences of work trees, apart from other texts: they are compressed, and the oldest are deleted when all of them have
-- more bytes than are kept.
CREATE TABLE diffs (
    diff_id INTEGER PRIMARY KEY,
    -- Of the body.
    hash INTEGER NOT NULL,
    -- When a submission had it last.
    used_us INTEGER NOT NULL,
    -- Of the body.
    bytes INTEGER NOT NULL,
    -- 1: the text itself, as it was stored before there was this table. 0: compressed, in the format zlib (RFC 1950).
    is_plain INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;

CREATE INDEX diffs_by_hash ON diffs (hash);
CREATE INDEX diffs_by_use ON diffs (used_us, bytes);

INSERT INTO diffs (diff_id, hash, used_us, bytes, is_plain, body)
SELECT text_id, hash, max(taken_us), length(body), 1, body
FROM sources
JOIN texts ON text_id = diff_id
GROUP BY text_id;

CREATE TABLE new_sources (
    job_id INTEGER PRIMARY KEY,
    taken_us INTEGER NOT NULL,
    -- What git told, as JSON.
    summary_id INTEGER NOT NULL REFERENCES texts (text_id),
    -- NULL where there are no differences, or they were left out or deleted.
    diff_id INTEGER REFERENCES diffs (diff_id) ON DELETE SET NULL
) STRICT;

INSERT INTO new_sources (job_id, taken_us, summary_id, diff_id) SELECT job_id, taken_us, summary_id, diff_id FROM sources;
DROP TABLE sources;
ALTER TABLE new_sources RENAME TO sources;
CREATE INDEX sources_by_summary ON sources (summary_id);
CREATE INDEX sources_by_diff ON sources (diff_id) WHERE diff_id IS NOT NULL;

DELETE FROM texts
WHERE text_id IN (SELECT diff_id FROM diffs)
    AND text_id NOT IN (SELECT summary_id FROM sources)
    AND text_id NOT IN (SELECT script_id FROM launches)
    AND text_id NOT IN (SELECT env_id FROM launches WHERE env_id IS NOT NULL);
