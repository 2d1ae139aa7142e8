"""A workload spec becomes operations."""
