-- The crontabs of scrontab. The jobs of the entries are in their own tables.
CREATE TABLE crontabs (
    uid INTEGER PRIMARY KEY,
    -- The file, byte for byte.
    text BLOB NOT NULL,
    -- The line numbers and the job of each entry, as JSON.
    entries TEXT NOT NULL
) STRICT;
