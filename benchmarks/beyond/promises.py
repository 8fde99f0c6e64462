"""Promises on many random splits: how often they were broken, and what they cost."""

from __future__ import annotations

from pathlib import Path

from posterity.replay import Recording, Results, run

CONFIDENCE = 0.9
RATES = ("0.5%", "2%")
RULES = [f"at-most:{rate},confidence={CONFIDENCE}" for rate in RATES]
BESIDE = ["max-belief", "cost-ratio:10"]
"""What costs nothing, and what is usual."""
BUDGET = "30%"
PRIOR = "uniform"
SPLITS = 200
FEW = 20
"""Splits that suffice to show what rules without a promise do."""

SEQUENCES = {
    "imagenet_val": ["alexnet", "resnet50", "resnext101_64x4d"],
    "cifar10_test": [
        *("cudaconvnet", "resnet_basic_110", "wrn_28_10"),
        "shake_shake_26_2x64d_SSI_cutout16",
    ],
    "model_vs_human": ["bagnet33", "resnet50", "swag_vit_b16_in1k", "swag_vit_l16_in1k"],
    "emotion_llm": ["falcon-7b", "Llama-2-7b-hf", "Qwen-7B", "Qwen-14B"],
}
"""Few models each, weak to strong: two hundred splits have to be walked."""


def measure(recordings: Path, name: str, splits: int) -> Results:
    """Replay one recording on as many random halves."""
    recording = Recording.load(recordings / f"{name}.npz").pick(SEQUENCES[name])
    found = run(recording, budgets=BUDGET, rules=RULES, prior=PRIOR, seed=1, seeds=splits)
    few = min(FEW, splits)
    found.extend(run(recording, budgets=BUDGET, rules=BESIDE, prior=PRIOR, seed=1, seeds=few))
    return found
