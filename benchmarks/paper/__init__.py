"""The paper's experiments on recordings of real classifiers: `make paper` writes docs/paper.md."""
