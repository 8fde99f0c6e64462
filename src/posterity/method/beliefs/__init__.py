"""Beliefs over classes: confusions, priors, plain and dependent beliefs, and their fit."""
