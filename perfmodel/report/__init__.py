"""Renderings of results: terminal, Markdown, CSV, plots, HTML and notebook, all from the JSON envelope."""
