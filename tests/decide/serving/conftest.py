import pytest

from perfmodel.serving.beliefs import textbook_beliefs
from perfmodel.serving.setup import service_of
from perfmodel.specs.jobs import load_any_job

LENGTHS = {"input_tokens": 1000, "output_tokens": 200}


@pytest.fixture(scope="session")
def service():
    """Services of an 8-billion-parameter decoder on H100s, with the textbook's beliefs: figures here do not move with a fit."""

    def made(block=None, **keys):
        whole = {"workload": "llama3-8b", "cluster": "dgx-h100", "serving": LENGTHS | (block or {})}
        return service_of(load_any_job(whole | keys), textbook_beliefs())

    return made
