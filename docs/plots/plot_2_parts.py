"""
Where the time goes
===================

The parts of a step add up to its time. The ledger prices what is lost against ideal scaling, in accelerator-seconds.
"""

from perfmodel.decide.prediction import predict
from perfmodel.specs.jobs import load_job

prediction = predict(load_job("../../examples/purchase.yaml"))
figure = prediction.plot("parts")

# %%
# The same as shares of the step.

figure = prediction.plot("shares")

# %%
# From the ideal step to the predicted one at the largest K.

figure = prediction.plot("ledger")
