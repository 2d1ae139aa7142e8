"""Renderings of a `check` envelope for machines that watch a repository: JUnit, SARIF, GitHub, pull requests."""
