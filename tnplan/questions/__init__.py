"""Circuits and the questions that are asked of them."""

TOPIC = "questions about circuits"
