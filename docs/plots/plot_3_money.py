"""
Cost against time
=================

Cost of the whole run at each K, then the Pareto front of a search over layouts and two kinds of hardware.
"""

from perfmodel.beliefs.population import shipped_beliefs
from perfmodel.decide.plan.planner import Request
from perfmodel.decide.plan.run import plan_job
from perfmodel.decide.prediction import predict
from perfmodel.specs.jobs import load_job

path = "../../examples/purchase.yaml"
figure = predict(load_job(path)).plot("cost")

# %%
# Everything under and to the left of the front is out of reach.

jobs = [load_job(path, overrides={"cluster": name, "k": "8..256"}) for name in ("dgx-a100", "dgx-h100")]
plan = plan_job(jobs, Request(objective="cost", deadline_s=14 * 86400.0), shipped_beliefs())
figure = plan.result.plot("pareto")
