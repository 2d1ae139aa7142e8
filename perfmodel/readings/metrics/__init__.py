"""Metrics that a run sent to a tracker (W&B, TensorBoard, MLflow), read as the step times of a training log."""
