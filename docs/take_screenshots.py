"""Take the screenshots of the page and the report: both sizes, light and dark.

    python docs/take_screenshots.py

Needs chromium and chromedriver; writes docs/screenshots/*.png.
"""

from __future__ import annotations

import base64
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

FOLDER = Path(__file__).with_name("screenshots")
SIZES = {"1280x800": (1280, 800), "390x844": (390, 844)}
SETUP = "?workload=resnet50&cluster=dgx-1v&bandwidth=1250000000&base=workload%3Dresnet50%26cluster%3Ddgx-1v"
FLAGS = ("--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-sync --no-first-run --hide-scrollbars "
         "--disable-background-networking --disable-component-update")  # fmt: skip


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Session:
    """A headless browser behind chromedriver."""

    def __init__(self, profile: str) -> None:
        port = free_port()
        self.driver = subprocess.Popen(
            ["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120, trust_env=False)
        for _ in range(100):
            try:
                self.http.get("/status")
                break
            except httpx.TransportError:
                time.sleep(0.1)
        options = {"binary": shutil.which("chromium"), "args": [*FLAGS.split(), f"--user-data-dir={profile}"]}
        wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}
        self.path = f"/session/{self.http.post('/session', json=wanted).json()['value']['sessionId']}"

    def cdp(self, command: str, **parameters: object) -> dict[str, str]:
        answer = self.http.post(f"{self.path}/goog/cdp/execute", json={"cmd": command, "params": parameters})
        return dict(answer.json()["value"] or {})

    def shoot(self, url: str, width: int, height: int, scheme: str, target: Path) -> None:
        self.cdp(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.http.post(f"{self.path}/url", json={"url": url})
        if url.startswith("http"):
            script = {"script": "return document.documentElement.dataset.ready", "args": []}
            while not self.http.post(f"{self.path}/execute/sync", json=script).json()["value"]:
                time.sleep(0.1)
        time.sleep(0.3)
        target.write_bytes(base64.b64decode(self.cdp("Page.captureScreenshot", format="png")["data"]))

    def close(self) -> None:
        self.http.delete(self.path)
        self.driver.terminate()
        self.driver.wait(10)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.html"
        predict = [
            sys.executable,
            "-m",
            "perfmodel",
            "predict",
            "-w",
            "resnet50",
            "-c",
            "dgx-1v",
            "--quiet",
        ]
        change = ["--set", "cluster.scale_out.bandwidth=1.25 GB/s", "--set", "steps=100000"]
        subprocess.run([*predict, *change, "--report", str(report)], check=True)
        port = free_port()
        server = subprocess.Popen(
            [sys.executable, "-m", "perfmodel", "serve", "--port", str(port), "--workers", "0", "--quiet"]
        )
        session = Session(f"{scratch}/profile")
        try:
            for _ in range(100):
                try:
                    httpx.get(f"http://127.0.0.1:{port}/healthz", trust_env=False)
                    break
                except httpx.TransportError:
                    time.sleep(0.2)
            for name, url in (("page", f"http://127.0.0.1:{port}/{SETUP}"), ("report", report.as_uri())):
                for size, (width, height) in SIZES.items():
                    for scheme in ("light", "dark"):
                        session.shoot(url, width, height, scheme, FOLDER / f"{name}-{size}-{scheme}.png")
        finally:
            session.close()
            server.terminate()
            server.wait(10)


if __name__ == "__main__":
    main()
