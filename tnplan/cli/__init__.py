"""The command line: one file a command, found by name in `main` and imported only when it runs."""
