"""What the method is about: arrays, classes, votes, and the text form of choices."""
