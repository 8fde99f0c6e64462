"""The demo: language detectors that keep the labels of real texts up to date."""
