"""How `make docs` builds the site. Pages stay plain Markdown, which a code host shows as well."""

import sys
from pathlib import Path

from posterity import __version__

sys.path.insert(0, str(Path(__file__).parent))

project = "Posterity"
project_copyright = "the authors of Posterity"
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "mathml"]

# Links such as first-hour.md#how-a-model-errs go to headings, as they do on a code host.
myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]

html_theme = "furo"
html_title = "Posterity"
html_math_renderer = "mathml"
html_copy_source = False
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["posterity.css"]

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
