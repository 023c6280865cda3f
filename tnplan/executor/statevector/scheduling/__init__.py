"""Which gates are done together: fusion, tiled passes, qubit remapping between ranks."""
