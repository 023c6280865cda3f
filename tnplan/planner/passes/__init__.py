"""The planner's passes, one file each; `pipeline` lists them in order and no pass calls the next."""
