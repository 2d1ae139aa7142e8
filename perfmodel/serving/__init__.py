"""Serving: a model that answers requests, from the physics of a step to load curves with bands, fleets and money.

The physics is in `perfmodel.physics`: `serving_coefficients` (what is fitted), `serving_shape` (the model in numbers),
`serving_step` (a step by part, and the memory of keys and values) and `serving.serving_answer` (throughput, first token
and time per token at any load). Everything there takes arrays.
"""
