"""Measured timings become a scaling study."""
