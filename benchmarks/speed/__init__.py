"""Speed and memory, measured in one run: `make bench` writes docs/measurements/performance.md."""
