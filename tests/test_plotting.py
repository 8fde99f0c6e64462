"""The plotting library's script is the installed one, less what is not drawn."""

from __future__ import annotations

import gzip
from importlib.resources import files

from posterity.web.report import plotly

PART = b'var %b=W((a,b)=>{"use strict";b.exports=%b()});'
MADE = b'var %b=W((a,b)=>{"use strict";var c=d();b.exports={calc:c,moduleType:"trace",name:"%b"}});'
NAMES = [
    b"pie",
    b"bar",
    b"box",
    b"cone",
    b"table",
    b"image",
    b"icicle",
    b"heatmap",
    b"funnel",
    b"ohlc",
]


def _bundle(names: list[bytes]) -> bytes:
    parts = b"".join(
        MADE % (b"in%d" % at, name) + PART % (b"x%d" % at, b"in%d" % at)
        for at, name in enumerate(names)
    )
    return parts + b"core.register([" + b",".join(b"x%d()" % at for at in range(len(names))) + b"])"


def test_only_what_is_drawn_is_started() -> None:
    made = plotly.started(_bundle(NAMES))
    assert made.endswith(b"core.register([x1(),x7()])")
    assert made.startswith(_bundle(NAMES).split(b"core")[0])


def test_a_bundle_that_is_made_otherwise_stays_as_it_is() -> None:
    without = _bundle([name for name in NAMES if name != b"heatmap"] + [b"violin"])
    twice = _bundle(NAMES) + _bundle(NAMES)
    for other in (
        b"",
        b"let Plotly={}",
        without,
        twice,
        _bundle(NAMES).replace(b"moduleType", b""),
    ):
        assert plotly.started(other) == other
        assert plotly.compiled_at_once(other) == other


def test_the_installed_one_is_served_with_both_changes() -> None:
    """The version that is pinned has the shape that is looked for; else first visits are slow."""
    installed = (files("plotly") / "package_data" / "plotly.min.js").read_bytes()
    small = plotly.started(installed)
    assert 0 < len(installed) - len(small) < 1000
    assert plotly.compiled_at_once(small) == plotly.script() != small
    assert gzip.decompress(plotly.packed()) == plotly.script()
    assert len(plotly.packed()) < len(installed) / 3
    assert plotly.maps_id()
