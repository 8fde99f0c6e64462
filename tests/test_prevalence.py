"""Class shares from votes: against plain sums, with nothing to find, and with something."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posterity import Model, Store, priors
from posterity.cli import run as command
from posterity.engine.ledger.context import Context
from posterity.errors import InvalidParameter
from posterity.method.adapt import class_shares
from posterity.method.beliefs import fit as beliefs_fit
from posterity.method.beliefs.dependent import Dependence
from posterity.method.data.arrays import Codes, Floats
from posterity.method.data.votes import VoteTable
from posterity.replay import Recording, run
from posterity.storage.files import open_files
from tests.stores import NAMES, World

CLASSES = 8


def drawn(rng: np.random.Generator, items: int, shares: Floats) -> tuple[Codes, Codes]:
    """Truths with these shares, and three models' votes on them."""
    truth = rng.choice(len(shares), items, p=shares).astype(np.int32)
    right = rng.random((items, 3)) < np.array([0.5, 0.6, 0.65])
    votes = np.where(right, truth[:, None], rng.integers(0, len(shares), (items, 3)))
    return truth, votes.astype(np.int32)


@pytest.fixture(scope="module")
def fit() -> Dependence:
    truth, votes = drawn(np.random.default_rng(0), 3000, priors.uniform(CLASSES))
    return beliefs_fit.fit(votes, truth, priors.uniform(CLASSES))


ZIPF = (1 / np.arange(1, CLASSES + 1)) / (1 / np.arange(1, CLASSES + 1)).sum()


def test_expected_counts_are_the_sums_of_all_beliefs(fit: Dependence) -> None:
    rng = np.random.default_rng(1)
    votes = drawn(rng, 200, ZIPF)[1]
    votes[rng.random(votes.shape) < 0.4] = -1
    votes = votes[(votes != -1).any(axis=1)]
    every = np.broadcast_to(np.arange(CLASSES, dtype=np.int32), (len(votes), CLASSES))
    expected = fit.believe(votes, range(3), asked=np.ascontiguousarray(every)).asked.sum(axis=0)
    found = class_shares._counts(fit, VoteTable.only(votes), range(3), class_shares._named(votes))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@given(
    st.lists(st.floats(0, 1e4), min_size=2, max_size=30), st.integers(0, 2**32 - 1), st.booleans()
)
def test_shares_lie_between_counts_and_what_they_are_drawn_to(
    counts: list[float], seed: int, ruled_out: bool
) -> None:
    to = np.random.default_rng(seed).dirichlet(np.ones(len(counts)))
    if ruled_out:
        to[0] = 0.0
        to /= to.sum()
    observed = np.array(counts) * (to > 0)
    shares = class_shares.drawn(observed, to)
    assert shares.sum() == pytest.approx(1)
    assert (shares[to > 0] > 0).all()
    assert (shares[to == 0] == 0).all()
    if observed.sum() > 0:
        own = observed / observed.sum()
        low, high = np.minimum(own, to) - 1e-12, np.maximum(own, to) + 1e-12
        assert ((low <= shares) & (shares <= high)).all()


def test_where_there_is_nothing_to_find_not_a_bit_changes(fit: Dependence) -> None:
    for seed in range(20):
        votes = drawn(np.random.default_rng(seed), 2000, priors.uniform(CLASSES))[1]
        assert class_shares.followed(fit, VoteTable.only(votes), range(3)) is fit
    nobody = VoteTable.only(np.full((5, 3), -1, dtype=np.int32))
    assert class_shares.followed(fit, nobody, range(3)) is fit


def test_shares_of_a_target_are_found(fit: Dependence) -> None:
    votes = drawn(np.random.default_rng(5), 4000, ZIPF)[1]
    found = class_shares.followed(fit, VoteTable.only(votes), range(3)).prior
    before = class_shares.apart(fit.prior, ZIPF)
    assert class_shares.apart(found, ZIPF) < before / 4


def recordings(items: int = 4000) -> tuple[Recording, Recording]:
    """A balanced labelled set, and a target with other class shares."""
    made = []
    for seed, shares in ((1, priors.uniform(CLASSES)), (2, ZIPF)):
        truth, votes = drawn(np.random.default_rng(seed), items, shares)
        names = [f"class-{code}" for code in range(CLASSES)]
        made.append(Recording(names, ("a", "b", "c"), truth, votes.T))
    return made[0], made[1]


def test_replay_gains_what_the_shares_are_worth() -> None:
    labelled, target = recordings()
    known = priors.given(np.bincount(target.truth), classes=CLASSES)
    accuracy = {
        name: run(target, source=labelled, prior=prior, budgets="100%", rules="max-belief").rows[0][
            "accuracy"
        ]
        for name, prior in (("uniform", "uniform"), ("estimated", "estimated"), ("known", known))
    }
    lost = accuracy["known"] - accuracy["uniform"]
    assert lost > 1
    assert accuracy["estimated"] - accuracy["uniform"] > lost / 2
    with pytest.raises(InvalidParameter, match="needs dependent beliefs"):
        run(target, source=labelled, prior="estimated", beliefs="plain")


def test_a_store_follows_and_says_so(tmp_path: Path) -> None:
    world = World(items=3000, labelled=900)
    # Of the items every one of a class is kept, of the others one in eight; of labelled ones all.
    kept = (world.truth == world.truth[0]) | (np.arange(world.items) % 8 == 0)
    right = {}
    for prior in ("uniform", "estimated"):
        store = Store.create(tmp_path / prior, classes=NAMES, prior=prior, shard_rows=500)
        store.add(world.table().filter(kept))
        for name in ("old", "mid", "new"):
            store.register(Model(name, labelled=world.labelled_table(name)))
            votes = world.votes_table(name).filter(kept)
            report = store.update(name, votes=votes, budget="100%", rule="max-belief")
        labels = store.labels().sort_by("row").column("label").to_numpy(zero_copy_only=False)
        right[prior] = (labels == world.truth[kept]).mean()
        assert ("Class frequencies follow the votes: " in report.note) == (prior == "estimated")
        contradicted = "warning: the votes show other class frequencies than the prior 'uniform': "
        assert (contradicted in report.note) == (prior == "uniform")
        assert report.adapted is not None
        assert (report.adapted["shares"] > 0.2) == (prior == "estimated")
        assert store.check() == []
    assert right["estimated"] > right["uniform"]
    assert command(["init", str(tmp_path / "cli"), "--classes", "a,b", "--prior", "estimated"]) == 0
    assert Context(open_files(tmp_path / "cli")).description.prior == "estimated"


def test_what_is_off_on_labelled_items_is_not_believed() -> None:
    usual = priors.uniform(CLASSES)
    assert class_shares.believed(usual, [(ZIPF, usual)], usual) is usual
    right = [(usual, usual), (usual, usual)]
    np.testing.assert_allclose(class_shares.believed(ZIPF, right, usual), ZIPF)
    # The same is found where it is not: all of it is the method's own error.
    np.testing.assert_allclose(class_shares.believed(ZIPF, [(ZIPF, usual)] * 2, usual), usual)
    # As much is found there in another order: what is left after taking it off is half believed.
    off = [(ZIPF[::-1], usual)] * 2
    left = ZIPF / ZIPF[::-1] / (ZIPF / ZIPF[::-1]).sum()
    little = class_shares.apart(class_shares.believed(ZIPF, off, usual), usual)
    assert 0 < little < class_shares.apart(left, usual) / 2
    # What is in doubt of the items cannot be known of their shares.
    sure, unsure = (
        class_shares.apart(class_shares.believed(ZIPF, right, usual, doubt), usual)
        for doubt in (0.01, 0.3)
    )
    assert sure > 0.95 * class_shares.apart(ZIPF, usual)
    assert unsure < 0.25 * class_shares.apart(ZIPF, usual)
    ruled_out = np.append(ZIPF[:-1] / ZIPF[:-1].sum(), 0.0)
    kept = class_shares.believed(ruled_out, [(ruled_out, ruled_out)], ruled_out + 0.0)
    assert kept[-1] == 0


def test_a_weak_model_tells_more_of_itself_than_of_the_items() -> None:
    """Single votes of a model that knows two of eight classes: shares stay as they were."""
    rng = np.random.default_rng(3)

    def blind(truth: Codes) -> Codes:
        votes = np.where(truth < 2, truth, rng.integers(0, 2, len(truth)))
        return votes.astype(np.int32)

    labelled, target = recordings()
    names, models = labelled.classes, ("blind", "a", "b", "c")
    made = [
        Recording(names, models, each.truth, np.vstack([blind(each.truth), each.votes]))
        for each in (labelled, target)
    ]
    accuracy = {
        prior: run(made[1], source=made[0], prior=prior, budgets="10%", rules="max-belief").rows[0][
            "accuracy"
        ]
        for prior in ("uniform", "estimated")
    }
    assert accuracy["estimated"] > accuracy["uniform"] - 2
