"""A store whose every name and text tries to be more than text."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa

from posterity import Model, Store

MARK = "window.__hacked=1"
"""What each of them would do."""

CLASSES = (
    f"<script>{MARK}</script>",
    f'"><img src=x onerror="{MARK}">',
    f'<a href="javascript:{MARK}">a <b>bold</b> link</a>',
    f"</script><svg onload={MARK}>",
    "{{7*7}}${7*7}%{x}$\\frac{1}{2}$",
    "\u202egnorw\u202c &lt;i&gt;&#60;b&#62; & \u0000".replace("\u0000", ""),
)
MODELS = (
    f'<b>old</b>"><img src=x onerror="{MARK}">',
    f"</script><script>{MARK}</script>",
    f"' onfocus='{MARK}' autofocus='{{{{7*7}}}}",
    f'<a href="http://elsewhere.invalid/">best</a> javascript:{MARK}',
)
TEXTS = (
    f"<script>{MARK}</script>",
    f"<img src=x onerror={MARK}><iframe srcdoc='<script>parent.{MARK}</script>'></iframe>",
    f"</textarea></script></title></style><svg/onload={MARK}>",
    "{% for x in ().__class__.__base__.__subclasses__() %}{{x}}{% endfor %}{{7*7}}",
    f"javascript:{MARK}",
    "\u202etxet desrever\u202c \u2066isolated\u2069 \ufeff",
    "<!-- comment --> <![CDATA[ x ]]> &lt;b&gt; &#x3c;b&#x3e;",
    "long " + "x" * 9_000,
    None,
    "",
    "None",
    "NaN",
    "=cmd|' /C calc'!A0",
)

ITEMS, LABELLED = 180, 240

PASSWORDS = "../../etc/passwd.png"
"""A path that leads out of the folder of pictures."""


def ids() -> list[str]:
    """Of all items."""
    starts = [name for name in (*CLASSES, *MODELS) if "\n" not in name]
    return [f"{starts[at % len(starts)]}/{at}" for at in range(ITEMS)]


def png() -> bytes:
    """A real picture of 8 by 8 pixels."""
    rows = b"".join(b"\x00" + bytes([200, 30, 30]) * 8 for _ in range(8))
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    ]
    chunks = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def pictures(folder: Path) -> list[str]:
    """Paths a payload names; only the first leads to a picture."""
    shown = folder / "pictures"
    shown.mkdir(parents=True)
    (shown / "real.png").write_bytes(png())
    (shown / "drawn.png").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg"><script>{MARK}</script></svg>'
    )
    secret = folder / "secret.png"
    secret.write_text("root:x:0:0:a secret\n")
    return ["real.png", PASSWORDS, str(secret), "drawn.png", "missing.png", "\u0001.png", "."]


def hostile_store(folder: Path) -> Path:
    """Labels by four models; flips in all directions."""
    rng = np.random.default_rng(3)
    names, paths = np.array(CLASSES), pictures(folder)
    store = Store.create(folder / "store", classes=CLASSES)
    listed = ids()
    table = pa.table(
        {
            "id": listed,
            "<b>text</b>": pa.array([TEXTS[at % len(TEXTS)] for at in range(ITEMS)], pa.string()),
            "picture": [paths[at % len(paths)] for at in range(ITEMS)],
            "thumb": pa.array([png() if at % 5 == 0 else b"<svg>" for at in range(ITEMS)]),
        }
    )
    store.add(table)
    truth, known = (rng.integers(0, len(names), count) for count in (ITEMS, LABELLED))
    for at, model in enumerate(MODELS):
        labelled = pa.table(
            {
                "id": [f"<i>{n}</i>" for n in range(LABELLED)],
                "truth": names[known],
                "vote": names[_guess(rng, known, 0.45 + 0.17 * at)],
            }
        )
        store.register(Model(model, labelled=labelled, cost=0.25))
        votes = pa.table({"id": listed, "vote": names[_guess(rng, truth, 0.45 + 0.17 * at)]})
        budget = "100%" if at == 0 else "60%"
        store.update(model, votes=votes, budget=budget, rule="cost-ratio:1")
    return folder / "store"


def _guess(rng: np.random.Generator, truth: np.ndarray, right: float) -> np.ndarray:
    other = rng.integers(0, len(CLASSES), len(truth))
    return np.where(rng.random(len(truth)) < right, truth, other)
