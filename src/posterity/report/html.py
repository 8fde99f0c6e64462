"""A report as one file: all it needs is inside, and a policy lets nothing else in."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from posterity.report import pages, plotting

SCRIPTS = ("theme.js", "charts.js", "page.js")


def self_contained(view: dict[str, Any], pictures: dict[tuple[int, str], str]) -> str:
    """The file. A hash for each script: one that a payload brought would not be run."""
    scripts = [pages.static(name).decode() for name in SCRIPTS]
    scripts.insert(1, plotting.script().decode())
    # Whatever closes a script within one would end it there.
    scripts = [text.replace("</script", "<\\/script") for text in scripts]
    sheet = pages.static("style.css").decode()
    policy = (
        f"default-src 'none'; script-src {' '.join(map(_hash, scripts))}; "
        f"style-src {_hash(sheet)}; img-src data:; base-uri 'none'; form-action 'none'"
    )
    return pages.render(
        "report.html",
        view=view,
        pictures=pictures,
        policy=policy,
        sheet=sheet,
        scripts=scripts,
        maps=plotting.maps_id(),
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
