DROP TABLE launches;
DROP TABLE texts;
