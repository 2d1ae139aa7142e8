"""Renderings of a result envelope."""
