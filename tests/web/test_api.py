from __future__ import annotations

import json
import re

import jsonschema
import pytest

from perfmodel.report import html
from perfmodel.web.app import STATIC
from perfmodel.web.guards import Buckets
from perfmodel.web.openapi import document

JOB = {"workload": "resnet50", "cluster": "dgx-a100", "k": "1..64"}


def error_of(response):
    jsonschema.validate(response.json(), document()["components"]["schemas"]["Error"])
    return response.json()["error"]


def test_predict_answers_with_the_envelope_and_its_words(client):
    response = client.post("/api/predict", JOB)
    assert response.status_code == 200
    body = response.json()
    assert body["schema"] == "perfmodel/prediction/1"
    assert body["result"]["k"] == [1, 2, 4, 8, 16, 32, 64]
    assert body["summary"]["answer"]
    low, high, middle = (body["result"][key] for key in ("speedup_low", "speedup_high", "speedup"))
    assert all(a <= b <= c for a, b, c in zip(low, middle, high, strict=True))


def test_predict_is_what_the_library_says(client, library):
    from perfmodel.web.requests import WhatIf

    served = client.post("/api/predict", JOB).json()
    served.pop("summary")
    assert served == json.loads(json.dumps(library.predict(WhatIf.model_validate(JOB))))


def test_more_bandwidth_is_never_slower_and_price_only_moves_cost(client):
    slow, fast = (client.post("/api/predict", JOB | {"bandwidth": b}).json()["result"] for b in (1e9, 1e11))
    assert all(a >= b for a, b in zip(slow["time_s"], fast["time_s"], strict=True))
    assert slow["time_s"][-1] > fast["time_s"][-1]
    cheap, dear = (client.post("/api/predict", JOB | {"price": p}).json()["result"] for p in (1.0, 2.0))
    assert cheap["time_s"] == dear["time_s"]
    assert dear["cost_usd"] == pytest.approx([2 * c for c in cheap["cost_usd"]])


def test_catalogue_names_can_all_be_asked_for(client):
    found = client.get("/api/catalog").json()
    assert {"resnet50", "llama3-8b"} <= {row["name"] for row in found["workloads"]}
    dgx = next(row for row in found["clusters"] if row["name"] == "dgx-h100")
    assert dgx["bandwidth"] == pytest.approx(5e10)
    assert dgx["accelerators_per_node"] == 8
    assert found["unreadable"] == 0


def test_calibration_moves_the_prediction_to_the_measurements(client):
    plain = client.post("/api/predict", JOB).json()["result"]
    slower = [1.4 * plain["time_s"][i] for i in (2, 3)]
    text = f"k,time_s\n4,{slower[0]}\n8,{slower[1]}\n"
    answer = client.post("/api/calibrate", {"job": JOB, "timings": text}).json()
    assert [row["k"] for row in answer["timings"]] == [4, 8]
    result = answer["prediction"]["result"]
    assert result["time_s"][3] == pytest.approx(slower[1], rel=0.1)
    assert result["time_s_high"][3] / result["time_s"][3] < plain["time_s_high"][3] / plain["time_s"][3]
    again = client.post("/api/predict", JOB | {"timings": answer["timings"]}).json()["result"]
    assert again == result


def test_bad_timings_are_answered_line_by_line(client):
    response = client.post("/api/calibrate", {"job": JOB, "timings": "k,time_s\n8,quick\n"})
    assert response.status_code == 422
    problem = error_of(response)
    assert problem["code"] == "bad_timings"
    assert problem["problems"][0]["message"].startswith("line 2")


def test_a_value_beyond_its_limits_is_told_in_our_words(client):
    problem = error_of(client.post("/api/predict", JOB | {"seed": -1, "precision": "bf17"}))
    assert [item["message"] for item in problem["problems"]] == ["not a choice here", "must be at least 0"]


def test_timings_beyond_the_peak_are_refused(client):
    response = client.post("/api/predict", JOB | {"timings": [{"k": 8, "time_s": 1e-5}]})
    assert response.status_code == 422
    assert "at the datasheet's peak" in response.text


def test_compare_report_and_job(client):
    compared = client.post("/api/compare", {"a": JOB, "b": JOB | {"cluster": "dgx-h100"}}).json()
    assert compared["schema"] == "perfmodel/comparison/1"
    assert compared["result"]["names"] == ["resnet50 on dgx-a100", "resnet50 on dgx-h100"]
    report = client.post("/api/report", JOB)
    assert report.headers["content-disposition"] == 'attachment; filename="resnet50-on-dgx-a100.html"'
    assert html.read(report.text)["schema"] == "perfmodel/prediction/1"
    assert "perfmodel predict -w resnet50 -c dgx-a100 -k 1..64" in report.text
    job = client.post("/api/job", JOB).json()
    assert job["yaml"].startswith("workload: resnet50\n")


def test_openapi_describes_every_route_and_its_answers(client):
    found = client.get("/openapi.json").json()
    jsonschema.Draft202012Validator.check_schema({"$defs": found["components"]["schemas"]})
    for path in found["paths"]:
        for method in found["paths"][path]:
            assert client.request(method.upper(), path).status_code != 404
    schemas = {"components": found["components"]}
    answer = client.post("/api/predict", JOB).json()
    jsonschema.validate(answer, {"$ref": "#/components/schemas/Envelope", **schemas})
    jsonschema.validate(JOB, {"$ref": "#/components/schemas/WhatIf", **schemas})


@pytest.mark.parametrize("name", STATIC)
def test_static_files_are_served_with_their_type_and_a_policy(name, client):
    response = client.get(f"/{name}")
    assert response.status_code == 200
    assert response.headers["content-type"].split(";")[0] == STATIC[name].split(";")[0]
    assert "default-src 'none'" in response.headers["content-security-policy"]
    again = client.get(f"/{name}", headers={"if-none-match": response.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_the_page_names_no_other_place(client):
    for name in STATIC:
        text = client.get(f"/{name}").text.replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|//[a-z]+\.|@import|url\(", text), name
    page = client.get("/").text
    assert " style=" not in page
    assert not re.search(r" on[a-z]+=", page)
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    labelled = re.findall(r'<label for="([^"]+)"', page)
    controls = re.findall(r"<(?:select|input)[^>]* id=\"([^\"]+)\"", page)
    assert sorted(labelled) == sorted(controls)


# What must never kill the server or read a file.

HOSTILE_BODIES = [
    b"",
    b"{",
    b"null",
    b"[]",
    b'"text"',
    b"NaN",
    b'{"workload": NaN}',
    b"\xff\xfe\x00",
    b'{"workload": "\\ud800"}',
    b"[" * 30_000,
    b'{"a":' * 10_000,
    b'{"seed": ' + b"9" * 5_000 + b"}",
    b'{"workload": "resnet50", "cluster": "dgx-a100", "workload": "x"}',
    json.dumps(JOB | {"workload": "x.yaml"}).encode(),
    json.dumps(JOB | {"cluster": "..yaml"}).encode(),
    json.dumps(JOB | {"workload": {"file": "/etc/passwd"}}).encode(),
    json.dumps(JOB | {"workload": {"hf": "/etc/passwd"}}).encode(),
    json.dumps(JOB | {"workload": {"torch": "os:getcwd"}}).encode(),
    json.dumps(JOB | {"grid": "no-such-grid"}).encode(),
    json.dumps(JOB | {"__proto__": {}}).encode(),
]


@pytest.mark.parametrize(
    "path", ["/api/predict", "/api/compare", "/api/calibrate", "/api/job", "/api/report"]
)
@pytest.mark.parametrize("body", HOSTILE_BODIES, ids=range(len(HOSTILE_BODIES)))
def test_hostile_bodies_get_an_error_in_the_one_form(path, body, client):
    response = client.post(path, body)
    assert response.status_code in (400, 422)
    assert "root:" not in response.text
    error_of(response)


@pytest.mark.parametrize(
    ("job", "field"),
    [
        (JOB | {"workload": "resnet5O"}, "workload"),
        (JOB | {"cluster": "dgx-a10"}, "cluster"),
        (JOB | {"workload": "gpt3-175b", "layout": {"tp": 7}}, "layout"),
        (JOB | {"precision": "fp4"}, "precision"),
    ],
)
def test_impossible_jobs_say_which_field_and_why(job, field, client):
    response = client.post("/api/predict", job)
    assert response.status_code == 422
    problems = error_of(response)["problems"]
    assert problems[0]["field"].startswith(field)
    assert problems[0]["message"]


def test_wrong_content_type_and_method_and_path(client):
    assert client.request("POST", "/api/predict", content=b"{}").status_code == 415
    form = {"content-type": "text/plain"}
    assert client.request("POST", "/api/predict", content=b"{}", headers=form).status_code == 415
    assert client.get("/api/predict").status_code == 405
    assert client.request("DELETE", "/api/catalog").status_code == 405
    assert client.get("/nothing").status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        "/../pyproject.toml", "/%2e%2e/pyproject.toml", "/..%2fpyproject.toml", "/static/../app.py", "/app.py",
        "/%2e%2e/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/etc/passwd", "/index.html/../../app.py", "/index.html%00.js",
        "/.git/config", "/api/../app.py", "/\\..\\app.py",
    ],
)  # fmt: skip
def test_no_path_reaches_a_file(path, client):
    response = client.get(path)
    assert response.status_code == 404
    assert "import" not in response.text


@pytest.mark.parametrize(
    ("host", "good"),
    [
        ("127.0.0.1:8765", True), ("localhost", True), ("LOCALHOST:80", True), ("[::1]:8765", True),
        ("evil.example", False), ("127.0.0.1.evil.example", False), ("localhost:8765:1", False), ("", False),
        ("127.0.0.1@evil.example", False), ("[::1]evil", False),
    ],
)  # fmt: skip
def test_only_known_host_names_are_answered(host, good, client):
    response = client.get("/healthz", headers={"host": host})
    assert response.status_code == (200 if good else 421)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://127.0.0.1:8765"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:9999"}, 403),
        ({"origin": "http://127.0.0.1:8765.evil.example"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "same-origin"}, 200),
    ],
)
def test_other_sites_are_refused(headers, status, client):
    assert client.post("/api/job", JOB, headers=headers).status_code == status


def test_a_link_from_another_site_may_open_the_page_but_not_the_api(client):
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert client.get("/", headers=headers).status_code == 200
    assert client.get("/api/catalog", headers=headers).status_code == 403


def test_sizes_are_limited(client):
    assert client.post("/api/predict", b" " * 70_000).status_code == 413
    assert client.post("/api/calibrate", b" " * 600_000).status_code == 413
    assert client.get("/?" + "x" * 9_000).status_code == 414
    headers = {"content-length": "99999999999999999999"}
    assert client.post("/api/predict", b"{}", headers=headers).status_code == 413


def test_rates_are_limited(make_client):
    client = make_client(rate_per_s=1e-6, burst=3)
    assert [client.get("/healthz").status_code for _ in range(5)] == [200, 200, 200, 429, 429]


def test_a_limited_address_recovers_at_its_rate():
    now = 0.0
    buckets = Buckets(rate=20, burst=3, clock=lambda: now)
    assert [buckets.take("x") for _ in range(4)] == [0.0, 0.0, 0.0, 0.05]
    now = 0.05
    assert buckets.take("x") == 0.0
    assert buckets.take("x") > 0.0
    now = 60.0  # a full bucket holds no more than its burst
    assert sum(buckets.take("x") == 0.0 for _ in range(9)) == 3


@pytest.mark.parametrize("path", ["/api/predict", "/api/report"])
def test_packed_for_whoever_takes_gzip_and_plain_for_others(path, client):
    packed = client.post(path, JOB, headers={"accept-encoding": "gzip"})
    plain = client.post(path, JOB, headers={"accept-encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.headers["vary"] == plain.headers["vary"] == "accept-encoding"
    assert packed.content == plain.content
    assert int(packed.headers["content-length"]) < len(plain.content) / 2


def test_answers_come_from_the_cache_the_second_time(make_client):
    client = make_client()
    for _ in range(3):
        client.post("/api/predict", JOB | {"seed": 5})
    assert client.get("/healthz").json() == {
        "ok": True,
        "asked": 3,
        "cached": 2,
        "joined": 0,
        "refused": 0,
        "restarts": 0,
    }


def test_a_fault_is_one_line_and_not_the_end(make_client):
    class Faulty:
        def catalogue(self):
            raise RuntimeError("secret /etc/passwd")

        def predict(self, request):
            return {"broken": float("nan")}

    client = make_client(Faulty())
    for response in (client.get("/api/catalog"), client.post("/api/predict", JOB)):
        assert response.status_code == 500
        assert error_of(response)["code"] == "fault"
        assert "secret" not in response.text
    assert client.get("/healthz").status_code == 200
