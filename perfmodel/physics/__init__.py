"""Equations on plain arrays: operations, machines, kernels, collectives, memory, waiting."""
