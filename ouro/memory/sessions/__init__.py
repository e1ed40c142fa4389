"""How sessions are kept: files of records, their index, and what can be found out without opening one."""
