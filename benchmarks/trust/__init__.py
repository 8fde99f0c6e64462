"""Dependent beliefs measured: calibration, the frontier, every cell, and what each part brings."""
