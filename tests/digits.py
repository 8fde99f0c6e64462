"""A small recording for tests: scikit-learn classifiers of increasing strength on digits."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from posterity.replay import Recording

TRAINING_SHARE = 0.15
"""Little data to learn from, so that the classifiers really differ."""
LABELLED_SHARE = 0.4
"""Of what is left, the share that is labelled; on the rest the models arrive."""


def record_digits(seed: int = 0) -> Recording:
    """Train six classifiers on a few handwritten digits and record their votes on all others."""
    digits = load_digits()
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(digits.target))
    training, rest = np.split(order, [int(TRAINING_SHARE * len(order))])
    classifiers: dict[str, Any] = {
        "decision tree": DecisionTreeClassifier(random_state=seed),
        "naive Bayes": GaussianNB(),
        "small forest": RandomForestClassifier(10, random_state=seed),
        "logistic": LogisticRegression(max_iter=5000),
        "neighbours": KNeighborsClassifier(1),
        "support vectors": SVC(gamma=0.001, C=10),
    }
    votes = np.array(
        [
            _train(classifier, digits.data[training], digits.target[training]).predict(
                digits.data[rest]
            )
            for classifier in classifiers.values()
        ],
        dtype=np.int32,
    )
    return Recording(
        classes=tuple(str(digit) for digit in digits.target_names),
        models=tuple(classifiers),
        truth=digits.target[rest].astype(np.int32),
        votes=votes,
        is_source=rng.random(len(rest)) < LABELLED_SHARE,
        name="digits",
    )


def _train(classifier: Any, data: np.ndarray, truth: np.ndarray) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # convergence notes mean nothing here
        return classifier.fit(data, truth)
