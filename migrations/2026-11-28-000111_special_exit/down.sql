-- The tables did not change.
SELECT 1;
