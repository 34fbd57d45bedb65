"""How the pages of this folder become a site: ``make docs``. Needs nothing from the network."""

from __future__ import annotations

project = "tensor-selector"
author = "the authors of tensor-selector"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]

# Links to headings, in the form that code hosts know: `page.md#a-heading`.
myst_heading_anchors = 4

html_theme = "furo"
html_title = "tensor-selector"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
highlight_language = "none"
pygments_style = "friendly"
pygments_dark_style = "monokai"
