"""The gate: policies on predictions, a committed baseline, and what changed since."""
