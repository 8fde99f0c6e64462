"""Replay: walk a model sequence over a recording and score what the method would have done."""

from posterity.replay.experiment import run
from posterity.replay.recording import Recording
from posterity.replay.results import Results
from posterity.replay.split import take_apart
from posterity.replay.walk import Step, fit, walk

__all__ = ["Recording", "Results", "Step", "fit", "run", "take_apart", "walk"]
