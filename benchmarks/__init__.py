"""What is measured rather than tested: the paper's experiments, speed and memory."""
