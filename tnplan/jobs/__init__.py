"""Jobs on devices: their driver, their options and outputs, and a folder for each engine."""
