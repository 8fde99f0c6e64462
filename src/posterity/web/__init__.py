"""The web page over a store: ``posterity serve``."""
