"""
A study of measured timings
===========================

AlexNet on K80, weak scaling, from the table that MXNet published: against a flat 1.0, the time per step grows once the
work leaves a few neighbours.
"""

from perfmodel.study.options import StudyOptions
from perfmodel.study.rubric import study_file

found = study_file("../../examples/alexnet-k80.csv", StudyOptions(regime="weak", work=512))
figure = found.plot("weak")
