"""What load tools write about a server that answers requests, as one row form."""

from perfmodel.readings.load.point import STATISTICS, LoadPoint
from perfmodel.readings.load.reader import is_load_test, read_load

__all__ = ["STATISTICS", "LoadPoint", "is_load_test", "read_load"]
