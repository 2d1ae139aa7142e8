"""The physics: pure vectorised functions, one published model a module."""
