"""The same gate from pytest: the `perfmodel_check` fixture comes with perfmodel."""


def test_the_job_scales_to_64(perfmodel_check):
    result = perfmodel_check("../job.yaml", "knee >= 64", "efficiency(k=64) >= 0.6")
    assert result["p_star"]["k"] <= 64


def test_every_policy_of_the_repository(perfmodel_check):
    perfmodel_check("../perfmodel.yaml")
