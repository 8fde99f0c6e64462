"""The labelled set: registering models, their votes on labelled items, rehearsing steps."""
