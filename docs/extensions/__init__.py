"""What the build of the documents adds to Sphinx: the reference of the API, and a check of the prose."""
