"""The page and the report in a real browser, driven through chromedriver's own protocol."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import threading
import time
from urllib.parse import quote

import httpx
import pytest

from perfmodel.report import html
from perfmodel.web import server
from perfmodel.web.requests import WhatIf
from perfmodel.web.workshop import Workers

BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))),
    None,
)
DRIVER = shutil.which("chromedriver")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        BROWSER is None or DRIVER is None,
        reason="needs chromium and chromedriver: apt-get install -y chromium chromium-driver",
    ),
]
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
CURVE = "return document.querySelector('#chart-speedup .s0 .line')?.getAttribute('points') ?? ''"
RIGHT = "\ue014"


class Browser:
    """One headless session; every call is one command of the W3C WebDriver protocol."""

    def __init__(self, base, profile):
        self.http = httpx.Client(base_url=base, timeout=60, trust_env=False)
        arguments = [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-sync", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", f"--user-data-dir={profile}",
            "--window-size=1280,900",
        ]  # fmt: skip
        options = {"binary": BROWSER, "args": arguments}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        self.session = self.call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]

    def call(self, method, path, body=None):
        answer = self.http.request(method, path, json=body if method == "POST" else None).json()["value"]
        assert not (isinstance(answer, dict) and "error" in answer), answer
        return answer

    def do(self, method, path, body=None):
        return self.call(method, f"/session/{self.session}{path}", body)

    def open(self, url):
        self.do("POST", "/url", {"url": url})

    def run(self, script, *args):
        return self.do("POST", "/execute/sync", {"script": script, "args": list(args)})

    def find(self, selector):
        return self.do("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT]

    def type(self, selector, text):
        self.do("POST", f"/element/{self.find(selector)}/value", {"text": text})

    def click(self, selector):
        self.do("POST", f"/element/{self.find(selector)}/click", {})

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0]).textContent", selector)

    def until(self, script, *args, seconds=15):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = self.run(script, *args)
            if found:
                return found
            time.sleep(0.03)
        raise AssertionError(f"never came true: {script} {args}; error shown: {self.text('#error')!r}")

    def changed(self, script, before):
        return self.until(
            f"const now = (() => {{ {script} }})(); return now !== arguments[0] ? now : null", before
        )

    def complaints(self):
        """What the console says beyond the refusals that the tests ask for."""
        entries = self.do("POST", "/se/log", {"type": "browser"})
        return [
            e["message"]
            for e in entries
            if e["level"] in ("SEVERE", "WARNING") and "status of 422" not in e["message"]
        ]

    def close(self):
        with contextlib.suppress(httpx.HTTPError):
            self.http.delete(f"/session/{self.session}")
        self.http.close()


@pytest.fixture(scope="module")
def page(library):
    """The address of a running server."""
    with serving(library) as address:
        yield address


@contextlib.contextmanager
def serving(answers):
    """The address of a server with those answers, for as long as it is needed."""
    listener = server.bind("127.0.0.1", 0)
    app = server.build(Workers(lambda: answers), server.limits_for("127.0.0.1"))
    thread = threading.Thread(target=app.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        app.should_exit = True
        thread.join(60)
        listener.close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [DRIVER, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    base = f"http://127.0.0.1:{port}"
    try:
        for _ in range(100):
            try:
                if httpx.get(f"{base}/status", timeout=5, trust_env=False).json()["value"]["ready"]:
                    break
            except (httpx.TransportError, KeyError):
                time.sleep(0.1)
        session = Browser(base, tmp_path_factory.mktemp("profile"))
        try:
            yield session
        finally:
            session.close()
    finally:
        process.terminate()  # the driver ends its browser
        process.wait(30)


@pytest.fixture
def ready(browser, page):
    """The page with a small job on it; nothing may be in the console afterwards."""
    browser.open(f"{page}?workload=resnet50&cluster=dgx-a100&kmax=256")
    browser.until("return document.documentElement.dataset.ready")
    browser.complaints()
    yield browser
    assert browser.complaints() == []


def test_the_page_loads_and_shows_an_answer(ready):
    assert "K =" in ready.text("#answer")
    assert ready.run(CURVE)
    for chart in ("efficiency", "cost"):
        assert ready.run(f"return document.querySelector('#chart-{chart} .line').getAttribute('points')")
    assert ready.run("return document.querySelectorAll('#chart-parts .bar').length") > 8
    assert ready.run("return document.querySelectorAll('#curve tbody tr').length") == 9
    assert ready.run("return document.querySelectorAll('#workload option').length") > 50


@pytest.mark.parametrize("slider", ["batch", "bandwidth", "jitter"])
def test_dragging_a_slider_moves_the_curve_and_leaves_a_ghost(slider, ready):
    before = ready.run(CURVE)
    ready.run("document.querySelector('[data-reset=' + arguments[0] + ']').focus()", slider)
    ready.type(f"#{slider}", RIGHT * 12)
    ready.changed(CURVE, before)
    assert ready.until("return document.querySelector('#chart-speedup .ghost .line')")
    assert f"{slider}=" in ready.run("return location.search")
    ready.click(f'[data-reset="{slider}"]')
    ready.until(f"return (() => {{ {CURVE} }})() === arguments[0]", before)


SLOW = """const real = window.fetch;
window.fetch = (...asked) => new Promise((go) => setTimeout(go, 400)).then(() => real(...asked));"""
CHANGE = "const chosen = document.getElementById(arguments[0]); chosen.value = arguments[1]; chosen.dispatchEvent(new Event('change'));"
IS_OLD = "const e = document.getElementById('results'); return e.classList.contains('old') && e.ariaBusy === 'true'"
IS_NEW = "const e = document.getElementById('results'); return !e.classList.contains('old') && e.ariaBusy === 'false'"


def test_an_old_answer_is_marked_while_a_new_one_is_out(ready):
    ready.until(IS_NEW)
    ready.run(SLOW)
    assert ready.run(f"{CHANGE} {IS_OLD}", "cluster", "dgx-a100")
    ready.until(IS_NEW)
    assert "dgx-a100" in ready.text("#subject")


def test_a_new_cluster_says_which_of_ones_own_values_it_took_back(ready):
    ready.type("#bandwidth", RIGHT * 3)
    ready.run(CHANGE, "cluster", "dgx-a100")
    assert ready.run("return !document.getElementById('forgotten').hidden")
    told = ready.text("#forgotten")
    assert "bandwidth" in told
    assert "price" not in told  # was never one's own
    ready.run(CHANGE, "cluster", "dgx-h100")
    assert ready.run("return document.getElementById('forgotten').hidden")
    ready.until(IS_NEW)


def test_the_latency_slider_asks_for_another_latency(ready, page):
    ready.type("#latency", RIGHT * 12)
    ready.until("return location.search.includes('latency=')")
    ready.click("#copy-command")
    ready.until("return document.getElementById('dialog-text').value.includes('cluster.scale_out.latency=')")
    ready.click("#dialog-close")


@pytest.mark.parametrize("slider", ["price", "fixed"])
def test_money_moves_the_cost(slider, ready):
    script = "return document.querySelector('#compare tbody tr:nth-child(5) td:nth-child(3)').textContent"
    before = ready.run(script)
    ready.type(f"#{slider}", RIGHT * 10)
    ready.changed(script, before)


def test_other_batches_are_compared_by_the_sample(browser, page):
    base = quote("workload=resnet50&cluster=dgx-a100&kmax=64&batch=4096")
    browser.open(f"{page}?workload=resnet50&cluster=dgx-a100&kmax=64&batch=8192&steps=100&sel=8&base={base}")
    browser.until("return document.documentElement.dataset.ready")
    rows = dict(
        browser.until(
            "const rows = [...document.querySelectorAll('#compare tbody tr')].map((r) => [r.cells[0].textContent, "
            "r.cells[3].textContent]); return rows.some(([, change]) => change.includes('%')) ? rows : null"
        )
    )
    assert not {"step time", "cost"} & set(rows)  # of twice the samples: no better and no worse
    for label in ("time per sample", "cost of a million samples"):
        assert abs(float(rows[label].removesuffix(" %") or 0)) < 10, rows
    assert rows["efficiency"] != ""


@pytest.mark.parametrize(
    ("control", "value"),
    [
        ("workload", "bert-large"),
        ("cluster", "dgx-1v"),
        ("regime", "weak"),
        ("precision", "fp32"),
        ("kmax", "64"),
        ("layout", "fixed"),
    ],
)
def test_every_choice_changes_the_answer(control, value, ready):
    script = (
        "return document.getElementById('curve').textContent + document.getElementById('subject').textContent"
    )
    before = ready.run(script)
    choose = "const s = document.getElementById(arguments[0]); s.value = arguments[1]; s.dispatchEvent(new Event('change'))"
    ready.run(choose, control, value)
    if control == "layout":
        assert ready.until("return !document.getElementById('layout-fields').hidden")
        ready.run(choose, "sharding", "fsdp")
        ready.until("return document.getElementById('compare').textContent.includes('fsdp')")
        ready.run(choose, "recompute", "full")
        ready.until("return document.getElementById('compare').textContent.includes('recompute full')")
    ready.changed(script, before)


def test_numbers_can_be_typed(ready):
    before = ready.text("#cost-basis")
    ready.type("#steps", "1000\t")
    ready.changed("return document.getElementById('cost-basis').textContent", before)
    assert "steps=1000" in ready.run("return location.search")


def test_k_is_chosen_by_slider_by_click_and_by_arrow_keys(ready):
    ready.run("document.getElementById('sel').focus()")
    before = ready.text("#sel-value")
    ready.type("#sel", RIGHT)
    after = ready.changed("return document.getElementById('sel-value').textContent", before)
    ready.run("document.querySelector('#chart-speedup svg').focus()")
    ready.type("#chart-speedup svg", "\ue012")
    ready.until("return document.getElementById('sel-value').textContent !== arguments[0]", after)
    ready.click("#chart-efficiency svg")
    assert ready.run("return document.querySelectorAll('#curve tr.chosen').length") == 1


def test_a_shared_link_restores_everything(ready, page):
    ready.type("#bandwidth", RIGHT * 9)
    ready.type("#jitter", RIGHT * 4)
    ready.until("return location.search.includes('jitter=')")
    ready.until("return document.querySelector('#chart-speedup .ghost .line')")
    time.sleep(0.5)
    ready.click("#share")
    link = ready.run("return document.getElementById('dialog-text').value")
    ready.click("#dialog-close")
    look = "return [document.getElementById('answer').textContent, document.getElementById('compare').textContent].join()"
    before, curve = ready.run(look), ready.run(CURVE)
    ready.open("about:blank")
    ready.open(link)
    ready.until("return document.documentElement.dataset.ready")
    ready.until(f"return (() => {{ {look} }})() === arguments[0]", before)
    assert ready.run(CURVE) == curve


def test_baseline_can_be_set_and_swapped(ready):
    choose = "const s = document.getElementById('cluster'); s.value = 'dgx-h100'; s.dispatchEvent(new Event('change'))"
    ready.run(choose)
    row = "return [...document.querySelectorAll('#compare tbody tr:nth-child(2) td')].slice(0, 2).map((c) => c.textContent).join()"
    ready.until(f"return (() => {{ {row} }})() === 'dgx-a100,dgx-h100'")
    ready.click("#why")
    ready.until("return !document.getElementById('why-text').hidden")
    assert "accelerator" in ready.text("#why-text")
    ready.click("#swap")
    ready.until(f"return (() => {{ {row} }})() === 'dgx-h100,dgx-a100'")
    ready.click("#pin")
    ready.until(f"return (() => {{ {row} }})() === 'dgx-a100,dgx-a100'")


def test_yaml_and_command_can_be_copied(ready):
    ready.click("#copy-command")
    ready.until("return document.getElementById('text-dialog').open")
    assert ready.run("return document.getElementById('dialog-text').value").startswith(
        "perfmodel predict -w resnet50 -c dgx-a100"
    )
    ready.click("#dialog-close")
    ready.click("#copy-yaml")
    ready.until("return document.getElementById('dialog-text').value.startsWith('workload: resnet50')")
    ready.click("#dialog-close")


def upload(browser, tmp_path, text):
    path = tmp_path / "timings.csv"
    path.write_text(text, encoding="utf-8")
    browser.type("#timings", str(path))


def test_a_bad_upload_is_explained_and_a_good_one_calibrates(ready, tmp_path, library):
    upload(ready, tmp_path, "k,time_s\n8,fast\n")
    ready.until("return !document.getElementById('error').hidden")
    assert "line 2" in ready.text("#error")
    assert ready.run("return document.getElementById('error').getAttribute('role')") == "alert"
    job = WhatIf(workload="resnet50", cluster="dgx-a100", k="1..256")
    result = library.predict(job)["result"]
    rows = "".join(f"{k},{1.5 * t}\n" for k, t in zip(result["k"][2:5], result["time_s"][2:5], strict=True))
    before = ready.run(CURVE)
    ready.run("document.getElementById('timings').value = ''")
    upload(ready, tmp_path, "k,time_s\n" + rows)
    ready.until("return !document.getElementById('timings-state').hidden")
    ready.changed(CURVE, before)
    assert ready.run("return document.querySelectorAll('#chart-speedup .dots .dot').length") == 3
    assert ready.run("return document.getElementById('error').hidden")


def test_an_impossible_layout_says_so_and_the_page_goes_on(ready):
    choose = "const s = document.getElementById(arguments[0]); s.value = arguments[1]; s.dispatchEvent(new Event('change'))"
    ready.run(choose, "workload", "llama3-8b")
    ready.run(choose, "layout", "fixed")
    ready.run(choose, "kmax", "8")
    ready.run(choose, "tp", "16")
    ready.until("return document.getElementById('error').textContent.includes('tp')")
    ready.run(choose, "tp", "8")
    ready.until("return document.getElementById('error').hidden")


def test_a_hostile_link_is_only_text(browser, page):
    browser.open(
        f"{page}?workload={quote('<img src=x onerror=alert(1)>')}&bandwidth=NaN&sel=-1&timings=x&layout=evil"
    )
    browser.until("return document.documentElement.dataset.ready")
    assert browser.run("return document.querySelectorAll('img').length") == 0
    assert browser.complaints() == []


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_nothing_hangs_over_the_edge(width, browser, page):
    metrics = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.do("POST", "/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": metrics})
    browser.open(f"{page}?workload=resnet50&cluster=dgx-a100")
    browser.until("return document.documentElement.dataset.ready")
    over = browser.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
    browser.do("POST", "/goog/cdp/execute", {"cmd": "Emulation.clearDeviceMetricsOverride", "params": {}})
    assert over <= 0


def test_controls_have_names_and_can_be_reached_by_tab(ready):
    unnamed = "return [...document.querySelectorAll('button, select, input, textarea, svg')].filter((e) => !(e.labels?.length || e.textContent.trim() || e.getAttribute('aria-label'))).map((e) => e.id)"
    assert ready.run(unnamed) == []
    ready.run("document.querySelector('.skip').focus()")
    seen = set()
    for _ in range(60):
        seen.add(ready.run("return document.activeElement.id || document.activeElement.dataset?.reset || ''"))
        ready.do(
            "POST",
            "/actions",
            {
                "actions": [
                    {
                        "type": "key",
                        "id": "k",
                        "actions": [
                            {"type": "keyDown", "value": "\ue004"},
                            {"type": "keyUp", "value": "\ue004"},
                        ],
                    }
                ]
            },
        )
    assert {"workload", "cluster", "sel", "bandwidth", "price", "share", "download", "timings"} <= seen


def test_the_report_opens_from_disk_sorts_and_shows_values(browser, tmp_path, library):
    path = tmp_path / "report.html"
    path.write_text(
        html.render(library.predict(WhatIf(workload="resnet50", cluster="dgx-a100"))), encoding="utf-8"
    )
    browser.open(path.as_uri())
    column = "return [...document.querySelectorAll('section[aria-label=\"In numbers\"] tbody tr')].map((r) => Number(r.cells[0].dataset.v))"
    ks = browser.run(column)
    head = 'section[aria-label="In numbers"] th:first-child button'
    browser.click(head)
    browser.click(head)
    assert browser.run(column) == sorted(ks, reverse=True)
    browser.run("document.querySelector('.wide svg.chart').focus()")
    browser.type(".wide svg.chart", RIGHT)
    assert "K = " in browser.run("return document.querySelector('.tip:not([hidden])').textContent")
    browser.click(".key")
    assert browser.run("return document.querySelectorAll('.wide .series.off').length") >= 1
    assert browser.complaints() == []
    assert json.loads(browser.run("return document.getElementById('perfmodel-result').textContent"))["schema"]


# Runs where it is taken for markup, in an attribute or in a script; its first letters tell where it is shown as text.
HOSTILE = "Evil</script><script>window.hurt=1</script><img src=x onerror='window.hurt=2'>\"'><b onmouseover=alert(1)>"


def hostile(value, but=()):
    """Every text in a piece of JSON replaced, except under the keys `but`."""
    if isinstance(value, dict):
        return {key: item if key in but else hostile(item, but) for key, item in value.items()}
    if isinstance(value, list):
        return [hostile(item, but) for item in value]
    return HOSTILE if isinstance(value, str) else value


class HostileLibrary:
    """A library whose every text, but the names by which the page asks, is an attack."""

    def __init__(self, library):
        self.library = library

    def __getattr__(self, name):
        return getattr(self.library, name)

    def catalogue(self):
        kept = ("name", "kind", "grids", "precisions", "shardings", "sample")
        return hostile(self.library.catalogue(), kept)

    def predict(self, request):
        envelope = self.library.predict(request)
        return envelope | {"inputs": hostile(envelope["inputs"]), "result": hostile(envelope["result"])}


def unhurt(browser):
    shown = browser.run(
        "return document.body.innerText + [...document.querySelectorAll('option')].map((o) => o.text)"
    )
    assert "Evil</script>" in shown
    assert browser.run("return window.hurt === undefined")
    assert browser.run("return document.querySelectorAll('img, [onerror], [onmouseover]').length") == 0
    assert browser.complaints() == []


def test_hostile_names_are_shown_and_not_run(browser, library, tmp_path):
    evil = HostileLibrary(library)
    with serving(evil) as address:
        browser.open(f"{address}?workload=resnet50&cluster=dgx-a100&kmax=64")
        browser.until("return document.documentElement.dataset.ready")
        unhurt(browser)
    path = tmp_path / "report.html"
    path.write_text(
        html.render(evil.predict(WhatIf(workload="resnet50", cluster="dgx-a100")), command=HOSTILE),
        encoding="utf-8",
    )
    browser.open(path.as_uri())
    unhurt(browser)
