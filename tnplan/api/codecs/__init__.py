"""Arrays in files, compressed and back; codecs compared."""
