from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posterity import Beliefs, Confusion, SoftVotes, priors
from posterity.errors import InvalidData
from tests import naive
from tests.problems import Problem, problems

TOLERANCE = 1e-9
"""Both sides are float64; what is allowed is rounding over up to eight votes and twelve classes."""


def fold_all(problem: Problem) -> Beliefs:
    folded = Beliefs(problem.prior, problem.items)
    for cast, confusion in zip(problem.votes, problem.confusions, strict=True):
        folded.fold(cast, confusion)
    return folded


def naive_joint(problem: Problem, item: int) -> list[float]:
    tables = [confusion.probabilities.tolist() for confusion in problem.confusions]
    return naive.log_joint(problem.prior.tolist(), problem.votes[:, item].tolist(), tables)


@given(problems())
def test_beliefs_equal_naive(problem: Problem) -> None:
    folded = fold_all(problem)
    assert (folded.votes == problem.votes).all()
    best = folded.most_believed()
    for item in range(problem.items):
        expected = naive.belief(naive_joint(problem, item))
        np.testing.assert_allclose(folded.probabilities()[item], expected, atol=TOLERANCE)
        assert folded.entropy()[item] == pytest.approx(naive.entropy(expected), abs=TOLERANCE)
        assert expected[best[item]] == pytest.approx(max(expected), abs=TOLERANCE)
        for k in range(problem.classes):
            believed = folded.of(np.full(problem.items, k))[item]
            assert believed == pytest.approx(expected[k], abs=TOLERANCE)


@given(problems(max_classes=6), st.data())
def test_soft_beliefs_equal_naive(problem: Problem, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    m = data.draw(st.integers(1, problem.classes))
    folded = Beliefs(problem.prior, problem.items)
    soft = []
    for cast, confusion in zip(problem.votes, problem.confusions, strict=True):
        probabilities = rng.dirichlet(np.ones(problem.classes), size=problem.items)
        probabilities[cast == -1] = 0
        soft.append(SoftVotes.top(probabilities, m))
        folded.fold(soft[-1], confusion)
    tables = [confusion.probabilities.tolist() for confusion in problem.confusions]
    for item in range(problem.items):
        votes: list[int | dict[int, float]] = [
            dict(zip(each.codes[item].tolist(), each.weights[item].tolist(), strict=True))
            if each.hard[item] != -1
            else {}
            for each in soft
        ]
        expected = naive.belief(naive.log_joint(problem.prior.tolist(), votes, tables))
        np.testing.assert_allclose(folded.probabilities()[item], expected, atol=TOLERANCE)


@given(problems())
def test_a_soft_vote_for_one_class_is_a_hard_vote(problem: Problem) -> None:
    soft = Beliefs(problem.prior, problem.items)
    for cast, confusion in zip(problem.votes, problem.confusions, strict=True):
        certain = np.eye(problem.classes)[cast] * (cast != -1)[:, None]
        soft.fold(SoftVotes.top(certain), confusion)
    np.testing.assert_allclose(
        soft.probabilities(), fold_all(problem).probabilities(), atol=TOLERANCE
    )


@given(problems(), st.randoms(use_true_random=False))
def test_votes_commute(problem: Problem, random: Any) -> None:
    order = list(range(len(problem.confusions)))
    random.shuffle(order)
    shuffled = Problem(problem.prior, [problem.confusions[t] for t in order], problem.votes[order])
    one, other = fold_all(problem), fold_all(shuffled)
    np.testing.assert_allclose(one.probabilities(), other.probabilities(), atol=TOLERANCE)
    np.testing.assert_allclose(one.entropy(), other.entropy(), atol=TOLERANCE)


@given(problems(max_items=30), st.integers(1, 30))
@settings(max_examples=60)
def test_chunks_change_not_one_bit(problem: Problem, chunk: int) -> None:
    whole = fold_all(problem)
    for start in range(0, problem.items, chunk):
        part = slice(start, start + chunk)
        alone = Problem(problem.prior, problem.confusions, problem.votes[:, part])
        assert_same_bits(whole, fold_all(alone), part)


@pytest.mark.parametrize("classes", [2, 3, 7, 8, 9, 63, 64, 65, 1000])
def test_vector_lanes_change_not_one_bit(classes: int) -> None:
    rng = np.random.default_rng(classes)
    votes = rng.integers(0, classes, (4, 37)).astype(np.int32)
    confusions = [Confusion.from_accuracy(a, classes=classes) for a in (0.3, 0.6, 0.7, 0.99)]
    problem = Problem(priors.uniform(classes), confusions, votes)
    whole = fold_all(problem)
    for item in range(37):
        alone = Problem(problem.prior, confusions, votes[:, item : item + 1])
        assert_same_bits(whole, fold_all(alone), slice(item, item + 1))


def assert_same_bits(whole: Beliefs, part: Beliefs, where: slice) -> None:
    assert (whole.entropy()[where] == part.entropy()).all()
    assert (whole.probabilities()[where] == part.probabilities()).all()
    assert (whole.most_believed()[where] == part.most_believed()).all()


@given(problems(), st.data())
def test_rows_receive_what_folding_all_with_gaps_gives(
    problem: Problem, data: st.DataObject
) -> None:
    scattered = Beliefs(problem.prior, problem.items)
    for cast, confusion in zip(problem.votes, problem.confusions, strict=True):
        rows = np.array(data.draw(st.permutations(np.flatnonzero(cast != -1).tolist())), dtype=int)
        scattered.fold(cast[rows], confusion, rows=rows)
    assert_same_bits(fold_all(problem), scattered, slice(None))


@given(problems(), st.randoms(use_true_random=False))
def test_permuting_classes_permutes_the_result(problem: Problem, random: Any) -> None:
    new_code = list(range(problem.classes))
    random.shuffle(new_code)
    code = np.array(new_code)
    back = np.argsort(code)
    votes = np.where(problem.votes == -1, -1, code[problem.votes]).astype(np.int32)
    confusions = [
        Confusion(confusion.probabilities[np.ix_(back, back)]) for confusion in problem.confusions
    ]
    permuted = fold_all(Problem(problem.prior[back], confusions, votes))
    plain = fold_all(problem)
    np.testing.assert_allclose(
        permuted.probabilities()[:, code], plain.probabilities(), atol=TOLERANCE
    )
    np.testing.assert_allclose(permuted.entropy(), plain.entropy(), atol=TOLERANCE)


@given(problems(), st.data())
def test_an_uninformative_confusion_changes_nothing(problem: Problem, data: st.DataObject) -> None:
    folded = fold_all(problem)
    before, entropy = folded.probabilities(), folded.entropy()
    # Uninformative: the vote's distribution is the same whatever the truth.
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    column = rng.dirichlet(np.ones(problem.classes))
    idle = Confusion.from_matrix(np.tile(column[:, None], (1, problem.classes)))
    folded.fold(rng.integers(0, problem.classes, problem.items), idle)
    np.testing.assert_allclose(folded.probabilities(), before, atol=TOLERANCE)
    np.testing.assert_allclose(folded.entropy(), entropy, atol=TOLERANCE)


@given(problems())
def test_beliefs_are_never_nan(problem: Problem) -> None:
    folded = fold_all(problem)
    assert np.isfinite(folded.probabilities()).all()
    assert (folded.entropy() >= 0).all()
    assert (folded.entropy() <= np.log(problem.classes) + TOLERANCE).all()
    assert (folded.of(folded.most_believed()) > 0).all()
    assert (folded.probabilities()[:, problem.prior == 0] == 0).all()


def test_contradicting_certainties_leave_both_classes_possible() -> None:
    sure = Confusion.from_accuracy(1.0, classes=3)
    torn = Beliefs(priors.uniform(3), items=1)
    torn.fold([0], sure)
    torn.fold([1], sure)
    assert torn.probabilities()[0] == pytest.approx([0.5, 0.5, 0.0], abs=1e-6)


def test_nearly_settled_items_keep_their_order() -> None:
    """Entropies far below the rounding of 1 + x must still rank."""
    strong = Confusion.from_accuracy(0.999, classes=1000)
    settled = Beliefs(priors.uniform(1000), items=2)
    for _ in range(8):
        settled.fold([0, 0], strong)
    settled.fold([0, -1], strong)
    assert 0 < settled.entropy()[0] < settled.entropy()[1] < 1e-16


@pytest.mark.parametrize(
    ("stored", "votes", "expected"),
    [
        ([0], [[0], [1]], 0),  # the stored label is among the tied
        ([1], [[0], [1]], 1),
        ([2], [[0], [1]], 1),  # it is not: the class voted for most recently
        ([2], [[1], [0]], 0),
        ([-1], [[1], [0]], 0),
        ([2], [[1], [-1]], 1),  # no tie at all
        ([-1], [[-1], [-1]], 0),  # no vote: the lowest code
        ([2], [[-1], [-1]], 2),
    ],
)
def test_exact_ties(stored: list[int], votes: list[list[int]], expected: int) -> None:
    alike = Confusion.from_accuracy(0.6, classes=3)
    tied = Beliefs(priors.uniform(3), items=1)
    for cast in votes:
        tied.fold(cast, alike)
    assert tied.most_believed(stored=np.array(stored, dtype=np.int32)).tolist() == [expected]
    table = alike.probabilities.tolist()
    flat = [cast[0] for cast in votes]
    joint = naive.log_joint([1 / 3] * 3, flat, [table, table])
    assert naive.most_believed(joint, flat, stored[0]) == expected


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda b, c: b.fold([0, 3], c), "'votes' must be between -1 and 2"),
        (lambda b, c: b.fold([0], c), "votes has 1, rows has 2"),
        (lambda b, c: b.fold([0], c, rows=np.array([2])), "'rows' must be positions from 0 to 1"),
        (lambda b, c: b.fold([0], c, rows=np.array([True, False])), "numpy.flatnonzero"),
        (lambda b, c: b.fold([0], c, rows=[0.9]), "integer positions; got float64"),
        (lambda b, c: b.fold(SoftVotes.top([[0.5, 0.5]] * 2), c), "about 2 classes"),
        (lambda b, _: b.probabilities([5]), "positions from 0 to 1"),
        (lambda b, _: b.most_believed(stored=[0]), "stored has 1, rows has 2"),
        (lambda b, c: b.fold([0, 1], c, rows=np.array([1, 1])), "one vote a model"),
        (lambda b, _: b.fold([0, 1], Confusion.from_accuracy(0.5, classes=4)), "4 classes"),
        (lambda b, _: b.of([0, 9]), "'labels' must be between"),
        (lambda b, _: b.of([0]), "labels has 1, rows has 2"),
    ],
)
def test_bad_input_is_named_and_changes_nothing(call: Any, message: str) -> None:
    kept = Beliefs(priors.uniform(3), items=2)
    with pytest.raises(InvalidData, match=message):
        call(kept, Confusion.from_accuracy(0.5, classes=3))
    assert len(kept.votes) == 0
    assert kept.probabilities() == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("prior", "message"), [(3, "shape"), ([[0.5, 0.5]], "shape"), (["a", "b"], "weights")]
)
def test_impossible_priors_are_refused(prior: Any, message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        Beliefs(prior, items=1)


def test_what_was_read_does_not_change_when_more_votes_come() -> None:
    kept = Beliefs(priors.uniform(3), items=1)
    before = kept.entropy()
    kept.fold([0], Confusion.from_accuracy(0.9, classes=3))
    assert before != kept.entropy()


def test_no_items_are_no_error() -> None:
    nobody = Beliefs(priors.uniform(3), items=0)
    nobody.fold([], Confusion.from_accuracy(0.5, classes=3))
    assert nobody.entropy().shape == (0,)
    assert nobody.most_believed().shape == (0,)
