"""One small file a verb."""
