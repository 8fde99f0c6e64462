"""The fast belief against plain loops, where it is hardest: many classes, many votes, extremes."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from posterity import Beliefs, Confusion, SoftVotes, priors
from posterity.errors import InvalidData
from posterity.method.beliefs import model_sets
from posterity.method.beliefs import product as beliefs_product
from posterity.method.beliefs.confusion import Cells
from posterity.method.beliefs.product import Product
from posterity.method.data.arrays import Codes, Floats, Rows
from posterity.method.data.votes import VoteTable
from posterity.method.kernels import compiler
from tests import naive
from tests.problems import Problem, problems

TOLERANCE = 1e-9
"""What is promised is 1e-6; rounding over forty votes and thousands of classes is far below."""

SLOW = settings(max_examples=60, suppress_health_check=list(HealthCheck), deadline=None)

EXTREMES = [1e-9, 1e-4, 0.03, 0.3, 0.5, 0.77, 0.99, 1 - 1e-6, 1 - 1e-9]


def compare(product: Product, hard: Codes, prior: Floats, joint_of: object) -> None:
    """Entropy, best class and beliefs of every item with those of plain loops."""
    votes = VoteTable.only(hard)
    folded = product.fold(votes)
    nobody = np.full(len(hard), -1, dtype=np.int32)
    best = product.prefer(votes, nobody, folded)
    every = np.tile(np.arange(len(prior), dtype=np.int32), (len(hard), 1))
    beliefs = np.exp(product.joints(votes, every) - folded.log_total[:, None])
    for item, row in enumerate(hard.tolist()):
        expected = naive.belief(joint_of(prior.tolist(), row))  # type: ignore[operator]
        assert folded.entropy[item] == pytest.approx(naive.entropy(expected), abs=TOLERANCE)
        assert expected[best[item]] == pytest.approx(max(expected), abs=TOLERANCE)
        assert folded.belief_best[item] == pytest.approx(max(expected), abs=TOLERANCE)
        np.testing.assert_allclose(beliefs[item], expected, atol=TOLERANCE)


@st.composite
def cast_votes(draw: st.DrawFn, classes: int, models: int) -> Codes:
    """All equal, all different, a few classes, anything; every item its own set of models."""
    items = draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = draw(st.sampled_from(["equal", "different", "few", "any"]))
    if kind == "equal":
        votes = np.tile(rng.integers(0, classes, (items, 1)), (1, models))
    elif kind == "different":
        votes = (rng.integers(0, classes, (items, 1)) + np.arange(models)) % classes
    else:
        votes = rng.integers(0, min(classes, 3) if kind == "few" else classes, (items, models))
    votes[rng.random(votes.shape) < draw(st.sampled_from([0.0, 0.5, 0.9]))] = -1
    return np.ascontiguousarray(votes, dtype=np.int32)


@st.composite
def some_prior(draw: st.DrawFn, classes: int) -> Floats:
    kind = draw(st.sampled_from(["uniform", "uneven", "one", "none"]))
    if kind == "uniform":
        return priors.uniform(classes)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    weights = rng.random(classes) + 1e-6
    if kind == "one":
        weights[rng.integers(classes)] = 1e9 * classes
    elif kind == "none" and classes > 2:
        weights[rng.integers(classes)] = 0.0
    return priors.given(weights, classes=classes)


@given(st.data(), st.sampled_from([2, 3, 5, 17, 100, 1000, 5000]), st.integers(1, 40))
@SLOW
def test_accuracies_equal_naive(data: st.DataObject, classes: int, models: int) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    among = data.draw(st.lists(st.sampled_from(EXTREMES), min_size=1, max_size=4))
    accuracies = rng.choice(among, (models, classes))
    if data.draw(st.booleans()):
        accuracies[:] = accuracies[:, :1]  # the same for all classes: a base without shape
    each = np.arange(classes, dtype=np.int32)
    confusions = [Confusion.sparse((1 - a) / (classes - 1), each, each, a) for a in accuracies]
    prior = data.draw(some_prior(classes))
    hard = data.draw(cast_votes(classes, models))
    told = accuracies.tolist()
    compare(
        Product(prior, confusions),
        hard,
        prior,
        lambda weights, votes: naive.log_joint_of_accuracies(weights, votes, told),
    )


@given(st.data(), st.sampled_from([2, 3, 5, 17, 100, 1000, 5000]), st.integers(1, 40))
@SLOW
def test_counts_equal_naive(data: st.DataObject, classes: int, models: int) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    labelled = data.draw(st.sampled_from([1, 30, 2000]))
    shared = data.draw(st.booleans())
    truth = rng.integers(0, classes, labelled)
    counts, confusions = [], []
    for _ in range(models):
        own = truth if shared else rng.integers(0, classes, labelled)
        accuracy = rng.choice([0.0, 0.5, 0.9, 1.0])
        vote = np.where(rng.random(labelled) < accuracy, own, rng.integers(0, classes, labelled))
        repeat = rng.choice([1, 10**6])
        cells = Cells.of(vote, own, np.full(labelled, repeat), classes)
        confusions.append(Confusion.from_cells(cells))
        pairs = zip(cells.votes.tolist(), cells.truths.tolist(), strict=True)
        counts.append(dict(zip(pairs, cells.counts.tolist(), strict=True)))
    prior = data.draw(some_prior(classes))
    hard = data.draw(cast_votes(classes, models))
    compare(
        Product(prior, confusions),
        hard,
        prior,
        lambda weights, votes: naive.log_joint_of_counts(weights, votes, counts),
    )


def test_forty_votes_that_underflow() -> None:
    """Likelihoods of 1e-9 each: their product is 1e-360, which no float holds."""
    classes, models = 50, 40
    sure = np.full(classes, 1 - 1e-9)
    sure[7] = 1e-9
    each = np.arange(classes, dtype=np.int32)
    confusions = [Confusion.sparse((1 - sure) / (classes - 1), each, each, sure)] * models
    hard = np.array([[7] * 40, [3] * 40, [3, 4] * 20, list(range(40))], dtype=np.int32)
    told = [sure.tolist()] * models
    prior = priors.uniform(classes)
    compare(
        Product(prior, confusions),
        hard,
        prior,
        lambda weights, votes: naive.log_joint_of_accuracies(weights, votes, told),
    )


def many_sets(classes: int, models: int, items: int) -> tuple[list[Confusion], Codes]:
    rng = np.random.default_rng(1)
    each = np.arange(classes, dtype=np.int32)
    accuracies = rng.uniform(0.05, 0.95, (models, classes))
    confusions = [Confusion.sparse((1 - a) / (classes - 1), each, each, a) for a in accuracies]
    votes = rng.integers(0, classes, (items, models))
    votes[rng.random(votes.shape) < 0.7] = -1
    return confusions, np.ascontiguousarray(votes, dtype=np.int32)


def all_of(product: Product, hard: Codes) -> list[bytes]:
    folded = product.fold(VoteTable.only(hard))
    return [array.tobytes() for array in folded]


@pytest.mark.parametrize(("models", "classes"), [(5, 7), (12, 200), (40, 300), (70, 20)])
def test_threads_blocks_and_schemes_change_not_one_bit(
    monkeypatch: pytest.MonkeyPatch, models: int, classes: int
) -> None:
    confusions, hard = many_sets(classes, models, 3000)
    prior = priors.uniform(classes)
    monkeypatch.setenv("POSTERITY_THREADS", "1")
    whole = all_of(Product(prior, confusions), hard)
    monkeypatch.setattr(compiler, "LEAST_ITEMS", 16)
    for threads in ("2", "3"):
        monkeypatch.setenv("POSTERITY_THREADS", threads)
        assert all_of(Product(prior, confusions), hard) == whole
    # In blocks, with sets kept from one to the next; where sets are few, and where they are not.
    for few, size in ((model_sets.FEW, 1000), (10**6, 64), (0, 7)):
        monkeypatch.setattr(model_sets, "FEW", few)
        product = Product(prior, confusions)
        parts = [all_of(product, hard[at : at + size]) for at in range(0, len(hard), size)]
        assert [b"".join(column) for column in zip(*parts, strict=True)] == whole


def test_sets_are_found_again_after_the_table_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    confusions, hard = many_sets(300, 30, 400)
    expected = all_of(Product(priors.uniform(300), confusions), hard)
    monkeypatch.setattr(model_sets, "FEW", 150)
    growing = Product(priors.uniform(300), confusions)
    for at in range(0, 400, 100):
        growing.fold(VoteTable.only(hard[at : at + 100]))
    assert all_of(growing, hard) == expected


@given(problems(max_classes=6, max_items=8), st.data())
@settings(max_examples=50)
def test_hard_and_soft_votes_mixed(problem: Problem, data: st.DataObject) -> None:
    """Blocks of soft votes, some items hard, some soft, of several widths."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    usual, beliefs_product.SOFT_CELLS = (
        beliefs_product.SOFT_CELLS,
        data.draw(st.sampled_from([1, 40, 10**6])),
    )
    try:
        folded = Beliefs(problem.prior, problem.items)
        told: list[list[int | dict[int, float]]] = [[] for _ in range(problem.items)]
        for cast, confusion in zip(problem.votes, problem.confusions, strict=True):
            if rng.random() < 0.5:
                folded.fold(cast, confusion)
                for item in range(problem.items):
                    told[item].append(int(cast[item]))
                continue
            probabilities = rng.dirichlet(np.full(problem.classes, 0.3), size=problem.items)
            probabilities[cast == -1] = 0
            soft = SoftVotes.top(probabilities, int(rng.integers(1, problem.classes + 1)))
            folded.fold(soft, confusion)
            for item in range(problem.items):
                pairs = zip(soft.codes[item].tolist(), soft.weights[item].tolist(), strict=True)
                told[item].append(dict(pairs) if cast[item] != -1 else {})
        tables = [confusion.probabilities.tolist() for confusion in problem.confusions]
        for item in range(problem.items):
            expected = naive.belief(naive.log_joint(problem.prior.tolist(), told[item], tables))
            np.testing.assert_allclose(folded.probabilities()[item], expected, atol=TOLERANCE)
            assert folded.entropy()[item] == pytest.approx(naive.entropy(expected), abs=TOLERANCE)
    finally:
        beliefs_product.SOFT_CELLS = usual


def test_a_vote_that_says_nothing_does_not_change_one_bit() -> None:
    """So that no rule takes rounding for an entropy that fell."""
    rng = np.random.default_rng(0)
    informed = Confusion.from_pairs(rng.integers(0, 9, 200), rng.integers(0, 9, 200), classes=9)
    idle = Confusion.from_accuracy(1 / 9, classes=9)
    hard = rng.integers(0, 9, (50, 3)).astype(np.int32)
    product = Product(priors.uniform(9), [informed, informed, idle])
    after, before = (
        product.fold(VoteTable.only(hard)),
        product.fold(VoteTable.only(hard).without_last()),
    )
    assert np.abs(after.entropy - before.entropy).max() < 1e-12


def test_few_models_and_many_are_kept_in_their_own_way() -> None:
    rng = np.random.default_rng(0)
    pairs = [(rng.integers(0, 20, 90), rng.integers(0, 20, 90)) for _ in range(3)]
    few = [Confusion.from_pairs(truth, votes, classes=20) for truth, votes in pairs]
    many, _ = many_sets(300, 30, 1)
    assert isinstance(
        model_sets.model_sets(Product(priors.uniform(20), few).terms), model_sets.Tabulated
    )
    assert isinstance(
        model_sets.model_sets(Product(priors.uniform(300), many).terms), model_sets.Numbered
    )
    # Models judged on the same labelled items share their base: forty of them are 41 sets.
    truth = np.repeat(np.arange(300), np.arange(300) % 3 + 1)
    alike = [Confusion.from_pairs(truth, np.roll(truth, t), classes=300) for t in range(40)]
    kept = model_sets.model_sets(Product(priors.uniform(300), alike).terms)
    assert isinstance(kept, model_sets.Tabulated)
    assert math.prod(kept._radix.tolist()) == 41


def test_an_exact_tie_with_an_untouched_class_goes_to_the_lowest_code() -> None:
    counted = Confusion.from_counts([[3, 0, 0], [3, 0, 0], [3, 2, 0]])
    tied = Beliefs(priors.uniform(3), items=1)
    tied.fold([1], counted)
    believed = tied.probabilities()[0]
    assert believed[0] == believed[2] > believed[1]
    assert tied.most_believed().tolist() == [0]


def test_codes_that_are_no_class_do_not_reach_a_kernel() -> None:
    product = Product(priors.uniform(3), [Confusion.from_accuracy(0.5, classes=3)])
    strange = np.array([[3]], dtype=np.int32)
    known = np.array([[0]], dtype=np.int32)
    with pytest.raises(InvalidData, match="'votes' must be between -1 and 2; got 3"):
        product.fold(VoteTable.only(strange))
    with pytest.raises(InvalidData, match="'labels' must be between -1 and 2; got 7"):
        product.fold(VoteTable.only(known), np.array([7], dtype=np.int32))


def test_a_soft_vote_against_its_cell_loses_no_digits() -> None:
    never = Confusion.from_accuracy(0.0, classes=2)
    light = 2.7e-14
    soft = SoftVotes(
        np.array([[1, 0]], dtype=np.int32),
        np.array([[1 - light, light]]),
        2,
        np.array([1], dtype=np.int32),
    )
    folded = Beliefs(priors.uniform(2), items=1)
    folded.fold(soft, never)
    table = never.probabilities.tolist()
    weights = {1: 1 - light, 0: light}
    expected = naive.belief(naive.log_joint([0.5, 0.5], [weights], [table]))
    assert folded.probabilities()[0] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("models", "classes"), [(1, 9), (4, 3), (12, 5), (16, 50), (40, 300)])
@pytest.mark.parametrize("share", [0.2, 0.5, 1.0])
@pytest.mark.parametrize("estimator", ["diagonal", "full"])
def test_batches_and_items_one_by_one_give_the_same_bits(
    models: int, classes: int, share: float, estimator: str
) -> None:
    """Whatever is known of an item's set of models, and whichever items are beside it."""
    rng = np.random.default_rng(models)
    truth, known = rng.integers(0, classes, 1500), np.repeat(np.arange(classes), 8)

    def cast(true: Rows) -> Codes:
        wrong = rng.random(len(true)) < 0.4
        return np.where(wrong, rng.integers(0, classes, len(true)), true).astype(np.int32)

    confusions = [
        Confusion.from_pairs(known, cast(known), classes=classes, estimator=estimator)
        for _ in range(models)
    ]
    hard = np.stack([cast(truth) for _ in range(models)], axis=1)
    hard[rng.random(hard.shape) >= share] = -1
    stored = np.where(rng.random(1500) < 0.7, hard[:, 0], rng.integers(0, classes, 1500))
    labels = stored.astype(np.int32)
    product = Product(priors.uniform(classes), confusions)
    votes = VoteTable.only(np.ascontiguousarray(hard))
    folded = product.fold(votes, labels)
    if isinstance(product._sets, model_sets.Numbered):
        product._sets._given_up = True  # each item is summed over all classes on its own
    apart = [product.fold(votes[at : at + 7], labels[at : at + 7]) for at in range(0, 1500, 7)]
    for name, values in folded._asdict().items():
        by_parts = np.concatenate([getattr(part, name) for part in apart])
        np.testing.assert_array_equal(values, by_parts, err_msg=name)


def test_what_another_version_kept_on_disk_is_compiled_anew(tmp_path: Path) -> None:
    """A cache with a type that no longer exists, as an older version may leave it."""
    code = """
import sys
from typing import NamedTuple
import numpy as np
from posterity.method.kernels import when_compiling
from posterity.method.kernels.compiler import compiled
when_compiling(lambda: print("compiling"))
class {name}(NamedTuple):
    x: np.ndarray
@compiled
def double(given):
    return 2 * given.x[0]
print(double({name}(np.ones(1))))
"""
    module = tmp_path / "kernel_of_mine.py"
    for name, told in (("Older", "compiling\n"), ("Newer", "compiling\n"), ("Newer", "")):
        module.write_text(code.format(name=name))
        ran = subprocess.run(
            # Bytecode goes by whole seconds: two versions within one would be taken for the same.
            [sys.executable, "-B", "-c", "import kernel_of_mine"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        assert ran.stdout == f"{told}2.0\n"  # what is kept is not compiled again
