"""
What the answer rests on
========================

One input at a time moves down and up by its own spread. The inputs at the top are worth measuring first.
"""

from perfmodel.explain.explanation import explain
from perfmodel.specs.jobs import load_job

figure = explain(load_job("../../examples/purchase.yaml", overrides={"k": "256"})).plot("tornado")
