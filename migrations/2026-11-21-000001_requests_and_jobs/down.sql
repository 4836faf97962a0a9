DROP TABLE jobs;
DROP TABLE requests;
