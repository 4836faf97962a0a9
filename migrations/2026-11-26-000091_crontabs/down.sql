DROP TABLE crontabs;
