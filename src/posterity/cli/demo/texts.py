"""Interface texts whose language is known: the translations that installed packages carry."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from posterity.errors import MissingExtra

PACKAGES = ("django", "sphinx")
"""Packages that translate whole sentences; lists of names would hardly show a language."""

LANGUAGES = tuple(
    """
    af ar az be bg bn br bs ca cs cy da de el en eo es et eu fa fi fr ga gd gl he hi hr hu hy ia id
    ig is it ja ka kk km kn ko ku ky lt lv mk ml mn mr ms ne nl no pl pt ro ru sk sl sq sr sv sw ta
    te tg th tk tr tt ug uk ur uz vi zh
    """.split()  # noqa: SIM905 - a column of 76 would hide the rest
)
"""Languages with at least sixty texts that at least two detectors know; fixed, so that the classes
do not change with what is installed."""

OTHER = "other"
"""Every other language: what is too rare here, or what a detector knows and we do not."""

CLASSES = (*LANGUAGES, OTHER)

MEMBERS = {"ckb": "ku", "nb": "no", "nn": "no"}
"""Folders named after one member of a language that detectors know only as a whole."""


@dataclass(frozen=True, eq=False)
class Texts:
    """Texts with the language they are in, one row each, sorted by id."""

    id: list[str]
    """Package, language and a number, as in ``django/de/000123``."""
    text: list[str]
    truth: list[str]
    """One of ``CLASSES``."""
    package: list[str]

    def __len__(self) -> int:
        return len(self.id)

    def __getitem__(self, rows: Iterable[int]) -> Texts:
        chosen = list(rows)
        return Texts(
            *([column[row] for row in chosen] for column in (self.id, self.text)),
            *([column[row] for row in chosen] for column in (self.truth, self.package)),
        )


def read_texts(least: int = 20) -> Texts:
    """Every different translation of at least ``least`` characters in the installed packages."""
    found: dict[str, tuple[str, str]] = {}
    disputed = set()
    for package, language, text in _translations():
        if len(text) >= least and found.setdefault(text, (package, language))[1] != language:
            disputed.add(text)
    numbers: Counter[tuple[str, str]] = Counter()
    rows = []
    for text, (package, language) in found.items():
        # The same words in two languages, as in Bosnian and Croatian: no truth is the right one.
        if text not in disputed:
            number = numbers[package, language]
            numbers[package, language] += 1
            truth = language if language in LANGUAGES else OTHER
            rows.append((f"{package}/{language}/{number:06}", text, truth, package))
    rows.sort()
    return Texts(*(list(column) for column in zip(*rows, strict=True)))


def _translations() -> Iterator[tuple[str, str, str]]:
    """Package, language and cleaned text of every translation, always in the same order."""
    try:
        from babel.messages.mofile import read_mo
    except ImportError:
        raise MissingExtra.of("The demo", "demo") from None
    catalogues = [(name, path) for name in PACKAGES for path in _catalogues(name)]
    if not catalogues:
        raise MissingExtra.of("The demo", "demo")
    for package, path in catalogues:
        language = to_language(path.parts[-3])
        with path.open("rb") as file:
            catalogue = read_mo(file)
        for message in catalogue:
            if not message.id:  # the header
                continue
            sources = {clean(source) for source in _forms(message.id)}
            for text in map(clean, _forms(message.string)):
                # Sources are English: equal to its source, a text in any other folder was not
                # translated, while in an English one it is as English as can be.
                if language == "en" or text not in sources:
                    yield package, language, text


def _catalogues(package: str) -> list[Path]:
    """The catalogues of a package, found without importing it."""
    spec = find_spec(package)
    folders = (spec and spec.submodule_search_locations) or []
    return [path for folder in folders for path in sorted(Path(folder).rglob("LC_MESSAGES/*.mo"))]


def _forms(text: object) -> tuple[str, ...]:
    """A text, or each of its plural forms."""
    return tuple(map(str, text)) if isinstance(text, (list, tuple)) else (str(text),)


def to_language(folder: str) -> str:
    """The language a folder is named after, whatever its region or script.

    >>> [to_language(folder) for folder in ("pt_BR", "zh_Hant", "sr@latin", "nb_NO")]
    ['pt', 'zh', 'sr', 'no']
    """
    language = re.split("[_@-]", folder)[0]
    return MEMBERS.get(language, language)


# What a detector should not see, for it is in no language at all.
_MARKUP = re.compile(
    r"""
      <[^<>]*>                           # tags
    | %\([^()]*\)(?:[-+#0-9.]*[a-zA-Z])? # %(name)s, at times without its last letter
    | %[-+#0-9.]*[a-zA-Z](?![a-zA-Z])    # %s, but not the sign in "50% done"
    | \{[^{}]*\}                         # {name}
    | (`+)[^`]*\1                        # ``code``
    | \w+://\S+                          # addresses
    | [a-zA-Z0-9.]*_[a-zA-Z0-9._]+       # names_in_programs
    """,
    re.VERBOSE,
)
_ACCELERATOR = re.compile(r"&(?=\w)")


def clean(text: str) -> str:
    """A text without placeholders, tags, code and accelerators.

    >>> clean("Delete the <b>%(name)s</b> of {user}&#8217;s &file?")
    'Delete the of ’s file?'
    """
    words = _MARKUP.sub(" ", html.unescape(text))
    return " ".join(_ACCELERATOR.sub("", words).split())
