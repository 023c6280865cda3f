"""Tests of the documents that run their code."""
