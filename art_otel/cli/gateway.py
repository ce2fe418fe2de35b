"""`art-otel gateway`: model servers at another address, with every call of every agent recorded."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from threading import Thread
from typing import Final

from art_otel.cli.arguments import add_settings
from art_otel.cli.serve import EndSignals, add_receiver_arguments, receiver_options, wait_and_stop
from art_otel.errors import UsageError
from art_otel.model_gateway.settings import SETTINGS

_GRADE_SECONDS: Final = 20.0


def add_parser(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:  # pyright: ignore[reportPrivateUsage] # argparse has no public name for it
    """Add the verb."""
    parser = verbs.add_parser(
        "gateway",
        help="pass requests on to model servers, and record every call of any agent",
        description="Run a gateway between agents and model servers (vLLM, SGLang, llama.cpp, OpenAI, Anthropic,"
        " …). Agents need only another base URL. Answers pass through as they come. Each call of Chat"
        " Completions, Completions, Responses, Messages or generateContent becomes a span of its rollout, with the"
        " token ids that the server returns. Finished rollouts go to trainers (art_otel.connect). The"
        " recorded spans are a dump: `art-otel convert DIR/spool/received`. OTLP is received at the"
        " same address.",
    )
    parser.add_argument(
        "--upstream",
        action="append",
        required=True,
        metavar="URL",
        help="the URL of a model server, such as http://vllm:8000; may be repeated to spread rollouts over several "
        "servers",
    )
    parser.add_argument(
        "--listen", default="127.0.0.1:8080", metavar="HOST:PORT", help="where to listen (default: 127.0.0.1:8080)"
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=1,
        metavar="N",
        help="how many processes answer at this address; each rollout is at one of them (default: 1)",
    )
    add_settings(parser, SETTINGS)
    parser.add_argument(
        "--otlp",
        metavar="URL",
        help="`art-otel serve` or another OpenTelemetry collector that also gets the spans of calls and rollouts, such"
        " as http://collector:4318",
    )
    add_receiver_arguments(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Stand there until the process is told to end."""
    from art_otel.http import Address  # noqa: PLC0415 # other verbs need no server
    from art_otel.model_gateway.gateway import LIMITS, Gateway, GatewayOptions  # noqa: PLC0415 # as above
    from art_otel.model_gateway.workers import GatewayWorkers  # noqa: PLC0415 # as above
    from art_otel.receiver.receiver import RECEIVED  # noqa: PLC0415 # as above

    receiver, signals = receiver_options(arguments, http=Address.parse(arguments.listen), limits=LIMITS), EndSignals()
    options = GatewayOptions(
        upstreams=arguments.upstream,
        receiver=receiver,
        otlp=arguments.otlp,
        **{setting.name: getattr(arguments, setting.name) for setting in SETTINGS},
    )
    if arguments.workers < 1:
        raise UsageError(f"--workers {arguments.workers}: give a whole number, 1 or more")
    gateway = Gateway(options) if arguments.workers == 1 else GatewayWorkers(options, arguments.workers)
    gateway.receiver.start()
    sys.stderr.write(f"art-otel: gateway at {gateway.url}, or {gateway.url}/rollout/ID for one rollout\n")
    sys.stderr.write(f"art-otel: writing to {receiver.folder / RECEIVED}; press Ctrl+C to stop\n")
    Thread(target=_grade, args=(arguments.upstream,), daemon=True).start()  # agents need not wait for it
    wait_and_stop(gateway.receiver, signals)
    return 0


def _grade(upstreams: Sequence[str]) -> None:
    """Say of each server what it has, as far as it says that without a key and without sampling."""
    from art_otel.model_gateway.grading import grade  # noqa: PLC0415 # as above
    from art_otel.model_gateway.upstreams import UpstreamError  # noqa: PLC0415 # as above

    for url in upstreams:
        try:
            given = asyncio.run(asyncio.wait_for(grade(url, may_sample=False), _GRADE_SECONDS))
        except (UpstreamError, TimeoutError) as error:
            sys.stderr.write(f"art-otel: {url} does not answer yet: {error or 'it is slow'}\n")
        else:
            sys.stderr.write(f"art-otel: {given.summary()}; more by: art-otel doctor --server {given.url}\n")
