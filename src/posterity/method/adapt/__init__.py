"""Adaptation to a target: class shares, difficulty, model accuracies."""
