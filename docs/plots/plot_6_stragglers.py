"""
Waiting for the slowest of K
============================

A synchronous step ends when its slowest worker does. With the same mean and the same spread of 5 %, the tail of the
distribution decides what that costs.
"""

import numpy as np

from perfmodel.physics.stragglers import expected_max
from perfmodel.report import plots

k = 2 ** np.arange(13)
families = ("normal", "lognormal", "exponential", "pareto")
curves = {name: expected_max(k, name, mean=1.0, spread=0.05).tolist() for name in families}
envelope = {"schema": "perfmodel/straggler/1", "result": {"k": k.tolist(), "expected_max": curves}}
figure = plots.figure(envelope, "straggler")
