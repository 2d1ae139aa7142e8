"""From a curve to a decision."""
