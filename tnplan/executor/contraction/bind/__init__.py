"""Instructions to callables of one rank: views, shapes and tables, made once."""
