"""Circuits and the questions that are asked of them."""

TOPIC = "questions about circuits"
"""What the errors of these modules are about, where one says no topic of its own."""
