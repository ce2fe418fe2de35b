"""`art-otel gateway`: model servers at another address, with every call of every agent recorded."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace
from threading import Thread
from typing import Final

from art_otel.cli.serve import add_receiver_arguments, receiver_options, told_to_end, wait_and_stop

_GRADE_SECONDS: Final = 20.0


def add_parser(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:  # pyright: ignore[reportPrivateUsage] # argparse has no public name for it
    """Add the verb."""
    parser = verbs.add_parser(
        "gateway",
        help="pass requests on to model servers, and record every call of any agent",
        description="Run a gateway between agents and model servers (vLLM, SGLang, llama.cpp, OpenAI, Anthropic,"
        " …). Agents need only another base URL. Answers pass through as they come. Each call of Chat"
        " Completions, Completions, Responses or Messages becomes a span of its rollout, with the"
        " token ids that the server returns. Finished rollouts go to trainers (art_otel.connect). The"
        " recorded spans are a dump: `art-otel convert DIR/spool/received`. OTLP is received at the"
        " same address.",
    )
    parser.add_argument(
        "--upstream",
        action="append",
        required=True,
        metavar="URL",
        help="a model server, such as http://vllm:8000; may be repeated to spread rollouts over several servers",
    )
    parser.add_argument(
        "--listen", default="127.0.0.1:8080", metavar="HOST:PORT", help="where to listen (default: 127.0.0.1:8080)"
    )
    parser.add_argument(
        "--tokens",
        choices=("auto", "passthrough", "exact", "off"),
        default="auto",
        help="how to get token ids. exact: sample from ids, in every dialect, and keep the ids of earlier turns in"
        " prompts (vLLM 0.32 with --enable-scale-out); passthrough: ask the server for ids, and remove them"
        " from the agent's answer; off: ask for nothing (default: auto, the best way that the server"
        " supports)",
    )
    parser.add_argument(
        "--keep-reasoning",
        action="store_true",
        help="with exact tokens: prompts keep the reasoning of earlier turns, even if the template removes it;"
        " each such call says so",
    )
    parser.add_argument(
        "--policy-version-header", metavar="NAME", help="the response header that names the version of the weights"
    )
    parser.add_argument(
        "--models",
        metavar="NAMES",
        help="mark calls that ask for other models than these as untrained: names or globs with commas between,"
        " ! excludes ('policy-*,!*judge*') (default: mark none)",
    )
    parser.add_argument(
        "--translate",
        choices=("auto", "never"),
        default="auto",
        help="auto: Messages, Responses and Gemini's generateContent go to the server as Chat Completions if it lacks"
        " them, or has them without token ids while its Chat Completions have ids; never: they go as they are (default:"
        " auto)",
    )
    parser.add_argument(
        "--max-calls",
        type=int,
        metavar="N",
        help="how many calls a rollout may make; further calls get an answer that ends the agent's loop, and are not"
        " recorded (default: any number)",
    )
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
    from art_otel.receiver.receiver import RECEIVED  # noqa: PLC0415 # as above

    receiver, ended = receiver_options(arguments), told_to_end()
    gateway = Gateway(
        GatewayOptions(
            upstreams=arguments.upstream,
            receiver=replace(
                receiver,
                http=Address.parse(arguments.listen),
                bodies=replace(LIMITS, body_bytes=receiver.bodies.body_bytes),
            ),
            tokens=arguments.tokens,
            keep_reasoning=arguments.keep_reasoning,
            policy_version_header=arguments.policy_version_header,
            otlp=arguments.otlp,
            translate=arguments.translate,
            max_calls=arguments.max_calls,
            models=tuple(name.strip() for name in arguments.models.split(",")) if arguments.models else None,
        )
    )
    gateway.receiver.start()
    sys.stderr.write(f"art-otel: gateway at {gateway.url}, or {gateway.url}/rollout/ID for one rollout\n")
    sys.stderr.write(f"art-otel: kept in {receiver.folder / RECEIVED}; Ctrl+C ends\n")
    Thread(target=_grade, args=(arguments.upstream,), daemon=True).start()  # agents need not wait for it
    wait_and_stop(gateway.receiver, ended)
    return 0


def _grade(upstreams: Sequence[str]) -> None:
    """Say of each server what it has, as far as it says that without a key and without sampling."""
    from art_otel.model_gateway.connections import UpstreamError  # noqa: PLC0415 # as above
    from art_otel.model_gateway.grading import grade  # noqa: PLC0415 # as above

    for url in upstreams:
        try:
            given = asyncio.run(asyncio.wait_for(grade(url, may_sample=False), _GRADE_SECONDS))
        except (UpstreamError, TimeoutError) as error:
            sys.stderr.write(f"art-otel: {url} does not answer yet: {error or 'it takes long'}\n")
        else:
            sys.stderr.write(f"art-otel: {given.summary()}; more by: art-otel doctor --server {given.url}\n")
