"""Outputs of jobs: files of arrays and states; whether they can be written, on every host, and by one job."""
