"""The site is whole: it builds without a warning, leads everywhere, and loads nothing from afar."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest

import posterity
from tests.conftest import ROOT

DOCS = ROOT / "docs"
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "embed": "src"}


@dataclass
class Page(HTMLParser):
    """What a page of HTML links to, loads, and can be linked at."""

    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors.add(given.get("id", ""))
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "link" and given.get("rel") not in ("canonical", "next", "prev", "search"):
            self.loaded.append(given["href"])
        if given.get(LOADED.get(tag, "")):
            self.loaded.append(given[LOADED[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet"]
    command += ["--doctree-dir", str(folder / "doctrees"), str(DOCS), str(folder / "html")]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    read = {}
    for path in sorted(site.rglob("*.html")):
        read[path] = Page()
        read[path].feed(path.read_text(encoding="utf-8"))
    return read


def is_elsewhere(url: str) -> bool:
    return bool(urlsplit(url).scheme or urlsplit(url).netloc)


def followed(path: Path, page: Page) -> Iterator[tuple[Path, str]]:
    """Where links within the site lead: the file, and the place in it."""
    for link in page.links:
        if not is_elsewhere(link):
            parts = urlsplit(link)
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            yield target, unquote(parts.fragment)


def test_nothing_is_loaded_from_another_host(site: Path, pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        assert page.loaded, path
        for url in page.loaded:
            assert url.startswith("data:") or not is_elsewhere(url), f"{path}: {url}"
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        assert "@import" not in text, style
        assert "url(http" not in text.replace('"', "").replace("'", ""), style
        assert "url(//" not in text.replace('"', "").replace("'", ""), style


def test_formulas_are_part_of_the_page(site: Path) -> None:
    text = (site / "explanation" / "method.html").read_text(encoding="utf-8")
    assert text.count("<math") > 20
    assert "$$" not in text


def test_links_and_their_places_are_there(pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        for target, place in followed(path, page):
            assert target.exists(), f"{path.name} links to {target}"
            if place and target in pages:
                assert place in pages[target].anchors, f"{path.name} links to {target.name}#{place}"


def test_every_page_is_reached_from_the_first(site: Path, pages: dict[Path, Page]) -> None:
    reached, waiting = set[Path](), [site / "index.html"]
    while waiting:
        path = waiting.pop()
        if path in pages and path not in reached:
            reached.add(path)
            waiting += [target for target, _ in followed(path, pages[path])]
    for source in DOCS.rglob("*.md"):
        assert (site / source.relative_to(DOCS)).with_suffix(".html") in reached, source


def test_the_public_names_are_described(pages: dict[Path, Page], site: Path) -> None:
    described = pages[site / "api.html"].anchors
    for name in set(posterity.__all__) - {"__version__"}:
        if isinstance(getattr(posterity, name), ModuleType):
            inside = f"posterity.{name}."
            assert any(place.startswith(inside) for place in described), name
        else:
            assert any(place.endswith(f".{name}") for place in described), name
