DROP TABLE memos;
