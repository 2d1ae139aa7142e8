"""The audit: a vendor's claim against physics, against the beliefs, and against the rules of an honest chart."""
