"""Sphinx: the pages of this folder, those written from the code, and a gallery of plots."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "_tools"))

import reference  # noqa: E402

from perfmodel import __version__  # noqa: E402

project = "perfmodel"
author = "The perfmodel authors"
copyright = author
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "mathml",
    "docstrings",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "_tools", "plots", "_generated/accuracy.md", "_generated/limits.md"]
exclude_patterns += ["gallery/**/*.ipynb", "gallery/**/*.py", "gallery/**/*.json"]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
html_math_renderer = "mathml"  # drawn by the browser: no script from elsewhere
html_theme = "furo"
html_title = f"perfmodel {release}"
html_static_path = ["static"]
html_css_files = ["perfmodel.css"]
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
napoleon_numpy_docstring = True
add_module_names = False
default_role = "code"  # `name` in a docstring


def scrape(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Save the Figure that a gallery script names `figure`; results return figures that pyplot does not know."""
    from sphinx_gallery.scrapers import figure_rst

    from perfmodel.report.plots import save

    drawn = block_vars["example_globals"].pop("figure", None)
    if drawn is None:
        return ""
    path = Path(next(block_vars["image_path_iterator"])).with_suffix(".svg")
    save(drawn, path)
    return str(figure_rst([str(path)], gallery_conf["src_dir"]))


sphinx_gallery_conf = {
    "examples_dirs": ["plots"],
    "gallery_dirs": ["gallery"],
    "image_scrapers": (scrape,),
    "filename_pattern": r"/plot_",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 1e9,
    "write_computation_times": False,
    "plot_gallery": True,
    "abort_on_example_error": True,
    "remove_config_comments": True,
}
# A function among the gallery's settings cannot be cached between builds; that is all this warning says.
suppress_warnings = ["config.cache"]

reference.write_all(HERE / "_generated")
