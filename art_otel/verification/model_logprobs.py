"""Model logprobs: what a Hugging Face causal language model gives for tokens of rows.

Invariant: each logprob is that of the whole row before the token, in float32. Memory is bounded by a budget of tokens
and of logits, however long the rows are and however many.

Rows of one agent begin alike, and those of many rollouts go on alike for long. So rows are sorted: one that another
begins with is read within it, and what a batch of neighbors has in common is read once, into the model's cache.

    row 3   system, question, "2", "Higher.", "4"
    row 7   system, question, "2", "Higher.", "5"      read once: system … "Higher."; then two rows of one token
"""

# torch and transformers are not installed where the types are checked.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportArgumentType=false

import inspect
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from art_otel.errors import UsageError

try:
    import torch
    from transformers import AutoModelForCausalLM
except ImportError as missing:
    raise UsageError("verify needs torch and transformers: pip install 'art-otel[verify]'") from missing

_TOKENS: Final = 8_192
"""Of a batch, beyond what its rows have in common."""

_LOGITS: Final = 1 << 25
"""Of one call of the model: 128 MB in float32, of which a softmax needs a second copy."""


class Wanted(NamedTuple):
    """Tokens of a row, by their positions in it (above 0, ascending), and the temperature of each; 1.0 is the model's.

    Shape of both arrays: (wanted tokens,).
    """

    row: int
    positions: NDArray[np.int32]
    temperatures: NDArray[np.float64]


class _Path(NamedTuple):
    """Ids that the model reads, and what is wanted of rows that are a beginning of them."""

    ids: NDArray[np.int32]
    wanted: list[int]


def load_model(folder: str | Path, *, dtype: str, device: str | None) -> Any:  # noqa: ANN401 # transformers has no types here
    """Load a model's folder, or its name on the hub. Raises UsageError where there is none."""
    try:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
    except (OSError, ValueError) as error:
        raise UsageError(f"--model {folder}: {error}") from error
    return model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))


def model_logprobs(
    model: Any,  # noqa: ANN401 # a transformers.PreTrainedModel
    rows: Sequence[NDArray[np.int32]],
    wanted: Sequence[Wanted],
) -> tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]]:
    """Compute the logprobs of wanted tokens, at temperature 1 and at the temperature of each.

    Both lists have an array of shape (wanted tokens,) for each entry of `wanted`. Raises UsageError for ids that the
    model does not have.
    """
    _check_ids(model, rows)
    plain = [np.full(len(one.positions), np.nan) for one in wanted]
    tempered = [np.full(len(one.positions), np.nan) for one in wanted]
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            for paths in _batches(_paths(rows, wanted)):
                _read_batch(model, paths, wanted, plain, tempered)
    finally:
        model.train(was_training)
    return plain, tempered


def _check_ids(model: Any, rows: Sequence[NDArray[np.int32]]) -> None:  # noqa: ANN401 # a transformers.PreTrainedModel
    size = model.get_input_embeddings().weight.shape[0]
    for row in rows:
        if len(row) and not 0 <= int(row.min()) <= int(row.max()) < size:
            worst = int(row.max() if int(row.max()) >= size else row.min())
            raise UsageError(f"token id {worst} is none of this model, which has {size}: another model sampled it")


def _paths(rows: Sequence[NDArray[np.int32]], wanted: Sequence[Wanted]) -> list[_Path]:
    """The rows in the order of their ids, without those that the next one begins with."""
    by_row: dict[bytes, list[int]] = {}
    for number, one in enumerate(wanted):
        # Big-endian bytes sort as the ids do.
        by_row.setdefault(rows[one.row].astype(">i4").tobytes(), []).append(number)
    paths: list[_Path] = []
    carried: list[int] = []
    ordered = sorted(by_row)
    for key, following in zip(ordered, [*ordered[1:], b""], strict=True):
        carried += by_row[key]
        if not following.startswith(key):
            paths.append(_Path(np.frombuffer(key, ">i4").astype(np.int32), carried))
            carried = []
    return paths


def _batches(paths: Sequence[_Path]) -> Iterator[list[_Path]]:
    """Neighbors whose tokens, beyond those that they have in common, are within the budget."""
    batch: list[_Path] = []
    common = width = 0
    for path in paths:
        shared = _common(batch[0].ids, path.ids) if batch else len(path.ids)
        longest = max(width, len(path.ids))
        if batch and (len(batch) + 1) * (longest - min(common, shared)) > _TOKENS:
            yield batch
            batch, shared, longest = [], len(path.ids), len(path.ids)
            common = shared
        common = min(common, shared) if batch else shared
        batch, width = [*batch, path], longest
    if batch:
        yield batch


def _common(first: NDArray[np.int32], second: NDArray[np.int32]) -> int:
    size = min(len(first), len(second))
    differs = np.flatnonzero(first[:size] != second[:size])
    return int(differs[0]) if len(differs) else size


def _read_batch(
    model: Any,  # noqa: ANN401 # a transformers.PreTrainedModel
    paths: Sequence[_Path],
    wanted: Sequence[Wanted],
    plain: list[NDArray[np.float64]],
    tempered: list[NDArray[np.float64]],
) -> None:
    """Read the rows of a batch once, segment by segment, and take the logprobs of what is wanted of them."""
    common = min(_common(paths[0].ids, path.ids) for path in paths)
    width = max(len(path.ids) for path in paths)
    ids = torch.zeros(
        (len(paths), width), dtype=torch.long
    )  # behind the end of a row anything may stand: nothing reads it
    for number, path in enumerate(paths):
        ids[number, : len(path.ids)] = torch.from_numpy(path.ids.astype(np.int64))
    # An entry for each wanted token: the row in the batch, the position, and where the answer belongs.
    entries = sorted(
        (int(position), number, request, place)
        for number, path in enumerate(paths)
        for request in path.wanted
        for place, position in enumerate(wanted[request].positions)
    )
    # The logits at the place before a token say its logprob. So the last token of all is not read.
    end = entries[-1][0]
    split = min(common, end)
    cache: Any = None
    for start, stop in pairwise(_cuts(model, entries, len(paths), split, end)):
        rows = 1 if stop <= split else len(paths)
        if rows > 1 and start == split and cache is not None and split > 0:
            cache.batch_repeat_interleave(rows)
        here = [entry for entry in entries if start < entry[0] <= stop]
        columns = sorted({entry[0] - 1 - start for entry in here})
        logits, cache = _forward(model, ids[:rows, start:stop], cache, columns)
        if not here:
            continue
        index = {column: place for place, column in enumerate(columns)}
        in_row = torch.tensor([entry[1] if rows > 1 else 0 for entry in here])
        in_column = torch.tensor([index[entry[0] - 1 - start] for entry in here])
        targets = ids[[entry[1] for entry in here], [entry[0] for entry in here]].to(logits.device)
        temperatures = np.array([wanted[request].temperatures[place] for _, _, request, place in here])
        scores = logits[in_row.to(logits.device), in_column.to(logits.device)].float()
        first = _gather(scores, targets)
        second = first
        if (temperatures != 1).any():
            second = _gather(scores / torch.from_numpy(temperatures).float().to(scores.device)[:, None], targets)
        for (_, _, request, place), one, other in zip(here, first, second, strict=True):
            plain[request][place], tempered[request][place] = one, other


def _gather(scores: Any, targets: Any) -> NDArray[np.float64]:  # noqa: ANN401 # tensors
    logprobs = scores.log_softmax(-1).gather(-1, targets[:, None])[:, 0]
    return logprobs.double().cpu().numpy()


def _cuts(
    model: Any,  # noqa: ANN401 # a transformers.PreTrainedModel
    entries: Sequence[tuple[int, int, int, int]],
    rows: int,
    split: int,
    end: int,
) -> list[int]:
    """Where segments begin and end: behind the last shared token, and before there are too many logits."""
    vocabulary = model.get_input_embeddings().weight.shape[0]
    cuts = [0]
    columns: set[int] = set()
    scored = 0
    for position, *_ in entries:
        column = position - 1
        in_rows = 1 if column < split else rows
        if cuts[-1] < split <= column:
            cuts.append(split)
            columns, scored = set(), 0
        size = max((len(columns | {column})) * in_rows, scored + 1)
        if columns and column not in columns and size * vocabulary > _LOGITS:
            cuts.append(column)
            columns, scored = set(), 0
        columns.add(column)
        scored += 1
    return [cut for cut in cuts if cut < end] + [end]


def _forward(model: Any, ids: Any, cache: Any, columns: Sequence[int]) -> tuple[Any, Any]:  # noqa: ANN401 # tensors
    """The logits at some columns of the ids, shape (rows, columns, vocabulary), and the cache behind them."""
    parameters = inspect.signature(model.forward).parameters
    # transformers renames it with 5.40.
    cache_name = "cache" if "cache" in parameters else "past_key_values"
    options: dict[str, Any] = {cache_name: cache, "use_cache": True}
    keeps = "logits_to_keep" in parameters
    if keeps:
        # A model that is asked for no logits gives those of every token, so one is asked for.
        options["logits_to_keep"] = torch.tensor(columns or [0], device=model.device)
    answer = model(ids.to(model.device), **options)
    return answer.logits if keeps else answer.logits[:, columns or [0]], answer[cache_name]
