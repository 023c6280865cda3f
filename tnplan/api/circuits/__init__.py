"""`tnplan.Circuit`: one object for a circuit, with the questions that every engine answers."""
