-- What has to be known for what people are told next: how many of an array, a chain or the queue ended how, which job is in
-- which chain, and what was told already.
CREATE TABLE memos (
    topic TEXT NOT NULL,
    number INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (topic, number)
) STRICT, WITHOUT ROWID;
