"""The what-if page."""
