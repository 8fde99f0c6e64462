"""An update of a store by a driver that may be killed: FOLDER, and ADDRESS or local:WORKERS."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import ray

from posterity import Model
from tests.on_ray.test_faults import ITEMS, updated
from tests.stores import World


def main(folder: Path, address: str) -> None:
    world, log = World(ITEMS, 120), folder / "asked"
    votes, pause = world.votes["new"], float(os.environ.get("PAUSE", "0"))

    def predict(batch: pa.Table) -> np.ndarray:
        numbers = batch.column("number").to_numpy()
        with log.open("a") as file:
            file.write("".join(f"{number}\n" for number in numbers))
        time.sleep(pause)
        found: np.ndarray = votes[numbers]
        return found

    kind, _, workers = address.partition(":")
    if kind == "local":
        ray.init("local", num_cpus=int(workers), include_dashboard=False, log_to_driver=False)
    executor = "ray" if kind == "local" else f"ray://{address}"
    model = Model("new", labelled=world.labelled_table("new"), predict=predict)
    updated(folder / "store", executor, model)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
