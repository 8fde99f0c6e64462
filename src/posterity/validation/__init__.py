"""Validation on the labelled set: rehearsed steps, expected accuracy, reliability, shift."""
