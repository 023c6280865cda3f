"""The independent check of a schedule. It shares no code with the passes that it checks."""
