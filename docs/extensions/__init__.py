"""What the build of the documents does beyond Sphinx's own: the reference of the API, and a check of the prose."""
