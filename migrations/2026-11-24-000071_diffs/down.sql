-- What is compressed cannot be read without this table: those jobs keep the rest of their record.
INSERT INTO texts (hash, body)
SELECT hash, body
FROM diffs
WHERE is_plain = 1
    AND NOT EXISTS (SELECT 1 FROM texts WHERE texts.hash = diffs.hash AND texts.body = diffs.body);

CREATE TABLE old_sources (
    job_id INTEGER PRIMARY KEY,
    taken_us INTEGER NOT NULL,
    -- What git told, as JSON.
    summary_id INTEGER NOT NULL REFERENCES texts (text_id),
    -- The differences; NULL where there are none, or they were left out.
    diff_id INTEGER REFERENCES texts (text_id)
) STRICT;

INSERT INTO old_sources (job_id, taken_us, summary_id, diff_id)
SELECT
    job_id,
    taken_us,
    summary_id,
    (
        SELECT min(text_id)
        FROM diffs
        JOIN texts ON texts.hash = diffs.hash AND texts.body = diffs.body
        WHERE diffs.diff_id = sources.diff_id AND is_plain = 1
    )
FROM sources;
DROP TABLE sources;
ALTER TABLE old_sources RENAME TO sources;
CREATE INDEX sources_by_summary ON sources (summary_id);
CREATE INDEX sources_by_diff ON sources (diff_id) WHERE diff_id IS NOT NULL;
DROP TABLE diffs;
