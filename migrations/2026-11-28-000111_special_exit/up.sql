-- `jobs.body` may have the hold `SpecialExit`. The tables do not change. An older program would find the record damaged; this
-- version makes it refuse the database.
SELECT 1;
