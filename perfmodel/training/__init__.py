"""The step of a training job, its layouts and its curve."""
