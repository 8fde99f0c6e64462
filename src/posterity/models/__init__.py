"""Models: what is registered, and how their answers become votes."""
