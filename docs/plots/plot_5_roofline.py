"""
Phases under the roof
=====================

Each phase of the step as a trail of dots, from the smallest K to the largest: as the work of one accelerator shrinks,
phases leave the roof.
"""

from perfmodel.explain.roofline import roofline
from perfmodel.specs.jobs import load_job

figure = roofline(load_job("../../examples/purchase.yaml")).plot()
