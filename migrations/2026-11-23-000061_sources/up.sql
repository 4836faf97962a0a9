-- How the work tree that a submission came from differed from its commit. The tasks of an array have no row: theirs is that
-- of the array's number.
CREATE TABLE sources (
    job_id INTEGER PRIMARY KEY,
    taken_us INTEGER NOT NULL,
    -- What git told, as JSON.
    summary_id INTEGER NOT NULL REFERENCES texts (text_id),
    -- The differences; NULL where there are none, or they were left out.
    diff_id INTEGER REFERENCES texts (text_id)
) STRICT;

CREATE INDEX sources_by_summary ON sources (summary_id);
CREATE INDEX sources_by_diff ON sources (diff_id) WHERE diff_id IS NOT NULL;
