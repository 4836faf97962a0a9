-- Ends of jobs that the notify hook is still to be told of: kept with the end, removed when a hook has started.
CREATE TABLE notices (
    number INTEGER PRIMARY KEY,
    body TEXT NOT NULL
) STRICT;
