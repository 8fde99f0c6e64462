"""The paper's experiments on recordings: `make paper` writes docs/measurements/paper.md."""
