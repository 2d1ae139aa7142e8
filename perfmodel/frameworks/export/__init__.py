"""The chosen layout of a prediction as a configuration of a training framework, with the line that launches it."""
