"""The planner's passes; `pipeline` lists them in order and no pass calls the next."""
