"""Loops that arrays cannot say, compiled; Numba lives only here."""
