"""OpenQASM 2 and 3: files are run while they are read, by the nodes of the reference parser."""
