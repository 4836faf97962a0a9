-- `jobs.body` has `own_texts`: the command line and the arguments of a job, which are no longer in `requests`. The tables do
-- not change. An older program would run such a job without its arguments; this version makes it refuse the database.
SELECT 1;
