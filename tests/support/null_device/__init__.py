"""A device without arrays: it counts bytes and operations."""
