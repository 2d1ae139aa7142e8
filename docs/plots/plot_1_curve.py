"""
The scaling curve
=================

Speedup against the ideal line with its 90 % band, the knee, the cheapest and the fastest K, and the efficiency with
the threshold that defines the knee.
"""

from perfmodel.decide.prediction import predict
from perfmodel.specs.jobs import load_job

prediction = predict(load_job("../../examples/purchase.yaml"))
figure = prediction.plot("speedup")

# %%
# Efficiency falls before speedup does; the bill follows the efficiency.

figure = prediction.plot("efficiency")
