"""Evaluation: plans carried out by a model or from a file of votes, batch by batch."""
