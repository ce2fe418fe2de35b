"""`art-otel verify`: the recorded tokens of a dataset beside a model's own logprobs."""

import argparse
import sys
from collections.abc import Iterator
from textwrap import fill
from typing import TYPE_CHECKING, Final

from art_otel.cli.terminal import counted, printable, printable_json, table_lines
from art_otel.errors import ArtOtelError

if TYPE_CHECKING:
    from art_otel.verification import Figures, Verification

_COLUMNS: Final = ("", "tokens", "mean", "worst", "KL (k1)", "KL (k3)", "outside [0.8, 1.25]")


def add_parser(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:  # pyright: ignore[reportPrivateUsage] # argparse has no public name for it
    """Add the verb."""
    parser = verbs.add_parser(
        "verify",
        help="compare the recorded logprobs of a dataset with a model's own",
        description="Compute the logprobs that a model gives for the trained tokens of a dataset, and compare them with"
        " the recorded ones. They are equal only if the ids, their order, the weights and the distribution are "
        "right. Where they differ, the command says what the pattern of differences means. The result is kept beside "
        "a dataset in a folder, where `art-otel view`"
        " shows it. Needs torch and transformers: pip install 'art-otel[verify]'. The exit code is 3 if something is"
        " beyond the limit.",
    )
    parser.add_argument("path", metavar="DATASET", help="a dataset folder, a Parquet file, or a glob of them")
    parser.add_argument("--model", required=True, metavar="FOLDER", help="the model that transformers loads")
    parser.add_argument(
        "--tokenizer", metavar="FOLDER", help="also compare what the ids say with the recorded messages"
    )
    parser.add_argument("--policy-version", metavar="NAME", help="only rollouts sampled by this policy version")
    parser.add_argument(
        "--sample",
        type=int,
        metavar="N",
        help="at most this many rollouts, chosen at random (default: 200; 0: all)",
    )
    parser.add_argument(
        "--precision",
        choices=("float32", "float16", "bfloat16"),
        help="the precision of the server, which sets the limit (default: the one in the model's own settings)",
    )
    parser.add_argument(
        "--limit",
        type=float,
        metavar="NATS",
        help="the largest mean difference that counts as equal (default: 2e-4 in float32, 0.01 in float16, 0.05 in "
        "bfloat16)",
    )
    parser.add_argument(
        "--dtype",
        choices=("float32", "float16", "bfloat16"),
        default="float32",
        help="the precision of the model on this machine (default: float32)",
    )
    parser.add_argument("--device", help="the device (default: a GPU if there is one)")
    parser.add_argument(
        "--no-save", action="store_true", help="do not write the result to _verify.json in the dataset's folder"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Verify the dataset, and print what was found."""
    from art_otel.verification.saved import describe, folder_of, save  # noqa: PLC0415 # loads for a verb that needs it
    from art_otel.verification.verify import SAMPLE, verify  # noqa: PLC0415 # as above

    result = verify(
        arguments.path,
        arguments.model,
        tokenizer=arguments.tokenizer,
        sample=SAMPLE if arguments.sample is None else arguments.sample or None,
        policy_version=arguments.policy_version,
        precision=arguments.precision,
        limit=arguments.limit,
        dtype=arguments.dtype,
        device=arguments.device,
    )
    saved = describe(
        result,
        dataset=arguments.path,
        model=arguments.model,
        dtype=arguments.dtype,
        policy_version=arguments.policy_version,
    )
    if arguments.json:
        sys.stdout.write(printable_json(saved.to_json()) + "\n")
    else:
        sys.stdout.writelines(_lines(result))
    folder = folder_of(arguments.path)
    if folder is not None and not arguments.no_save:
        try:
            save(saved, folder)
        except (ArtOtelError, OSError) as error:  # what was found is printed, whoever keeps it
            sys.stderr.write(f"art-otel: the result was not saved: {error}\n")
    return 0 if result.holds else 3


def _lines(result: "Verification") -> Iterator[str]:
    some = "" if result.rollouts == result.total_rollouts else f"{result.rollouts:,} of "
    yield f"{some}{counted(result.total_rollouts, 'rollout')}, {counted(result.completions, 'completion')} compared\n"
    for reason, count in result.skipped.items():
        yield f"not compared: {counted(count, 'completion')}, {printable(reason)}\n"
    if result.all.tokens:
        rows = {"all": result.all}
        rows |= {f"version {name}": figures for name, figures in result.by_version.items()}
        rows |= {f"position {name}": figures for name, figures in result.by_position.items()}
        rows |= result.by_kind
        yield "\n"
        yield from table_lines([_COLUMNS, *(_cells(name, figures) for name, figures in rows.items())])
        yield f"\nThe limit is a mean of {result.limit:g} nats.\n"
    for one in result.diagnoses:
        heading = f"{one.name.upper()}: {one.where} ({one.tokens} tokens, {one.share:.0%}, mean {one.mean:.1e})"
        yield "\n" + printable(heading) + "\n"
        yield fill(f"{one.meaning[0].upper()}{one.meaning[1:]}.", 100, initial_indent="  ", subsequent_indent="  ")
        yield "\n" + fill(f"What to do: {one.advice}.", 100, initial_indent="  ", subsequent_indent="  ") + "\n"
    texts = result.texts
    if texts is not None:
        yield f"\nText: the ids of {texts.equal} of {texts.completions} completions say what was recorded\n"
        for example in texts.examples:
            place = f"  rollout {example.rollout_id}, turn {example.turn}: {example.field}"
            yield printable(f"{place}: recorded {example.recorded!r}, decoded from the ids {example.decoded!r}") + "\n"
        if texts.meaning is not None:
            yield f"  {texts.meaning[0].upper()}{texts.meaning[1:]}.\n"
    if result.holds and result.all.tokens:
        yield "\nThe recorded tokens come from this model.\n"


def _cells(name: str, figures: "Figures") -> tuple[str, ...]:
    numbers = (figures.mean, figures.worst, figures.kl_k1, figures.kl_k3)
    texts = ["-" if number is None else f"{number:.1e}" for number in numbers]
    outside = "-" if figures.outside is None else f"{figures.outside:.2%}"
    return (name, str(figures.tokens), *texts, outside)
