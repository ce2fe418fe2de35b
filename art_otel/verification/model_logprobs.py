"""Model logprobs: the logprobs that a Hugging Face causal language model gives for tokens of rows.

Invariant: each logprob is computed from the whole row before the token, in float32. Memory is bounded by a budget of
tokens and of logits, whatever the length and number of rows.

Rows of one agent begin alike, those of many rollouts for long. So rows are sorted. A row that is the beginning of
another row is read within the longer one. A batch of neighboring rows is read segment by segment, each segment once for
all rows that are equal up to its end, with the model's cache of the segments before.

    row 3   system, question, "2", "Higher.", "4"      read once: system, question
    row 7   system, question, "2", "Higher.", "5"      then two rows: "2", "Higher." and "3", "Lower."
    row 9   system, question, "3", "Lower.", "1"       then three:    "4", "5" and "1"
"""

# torch and transformers are not installed where the types are checked.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportArgumentType=false

import copy
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

_TOKENS: Final = 16_384
"""Tokens of a batch with the common beginning of its rows: so many are in the model's cache at once."""

_LOGITS: Final = 1 << 25
"""Logits of one call of the model: 128 MB in float32, and a second copy for the softmax."""

_WASTE: Final = 256
"""Tokens that a segment may read again in rows that are equal there: another call of the model costs about as much."""

_ATTENTION: Final = frozenset({"full_attention", "sliding_attention", "chunked_attention"})
"""Kinds of layers whose cache has keys and values per token and row, so that single rows can be taken out of it."""


class WantedTokens(NamedTuple):
    """Tokens of a row, by their positions in it (above 0, ascending), and the temperature of each; 1.0 is the model's.

    Shape of both arrays: (wanted tokens,).
    """

    row: int
    positions: NDArray[np.int32]
    temperatures: NDArray[np.float64]


class _Path(NamedTuple):
    """Ids that the model reads, and the wanted tokens of the rows that are a beginning of these ids."""

    ids: NDArray[np.int32]
    wanted: list[int]


class _Beginning(NamedTuple):
    """The common beginning of all rows: its number of tokens, and the model's cache after it (None: not read)."""

    length: int
    cache: Any


class _WantedToken(NamedTuple):
    """A wanted token: its position, its path in the batch, and the place of its result."""

    position: int
    path: int
    request: int
    place: int


def load_model(folder: str | Path, *, dtype: str, device: str | None) -> Any:  # noqa: ANN401 # transformers has no types here
    """Load a model from a folder, or by its name on the hub. Raises UsageError if there is no such model."""
    try:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
    except (OSError, ValueError) as error:
        raise UsageError(f"--model {folder}: {error}") from error
    return model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))


def model_logprobs(
    model: Any,  # noqa: ANN401 # a transformers.PreTrainedModel
    rows: Sequence[NDArray[np.int32]],
    wanted: Sequence[WantedTokens],
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
            paths = _paths(rows, wanted)
            beginning = _read_beginning(model, paths, wanted)
            for batch in _batches(paths):
                _read_batch(model, batch, beginning, wanted, plain, tempered)
    finally:
        model.train(was_training)
    return plain, tempered


def _check_ids(model: Any, rows: Sequence[NDArray[np.int32]]) -> None:  # noqa: ANN401 # a transformers.PreTrainedModel
    size = model.get_input_embeddings().weight.shape[0]
    for row in rows:
        if len(row) and not 0 <= int(row.min()) <= int(row.max()) < size:
            worst = int(row.max() if int(row.max()) >= size else row.min())
            raise UsageError(
                f"token id {worst} does not exist in this model, which has {size} tokens: another model sampled it"
            )


def _paths(rows: Sequence[NDArray[np.int32]], wanted: Sequence[WantedTokens]) -> list[_Path]:
    """The rows sorted by their ids, without rows that are a beginning of the next row."""
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


def _read_beginning(model: Any, paths: Sequence[_Path], wanted: Sequence[WantedTokens]) -> _Beginning:  # noqa: ANN401 # a transformers.PreTrainedModel
    """Read the common beginning of all rows, up to the first token whose logprob is wanted."""
    if not paths or not _can_share(model):
        return _Beginning(0, None)
    earliest = min(int(one.positions[0]) for one in wanted) - 1
    length = min(_common(paths[0].ids, paths[-1].ids), earliest)  # of sorted rows the first and the last differ most
    if length <= 0:
        return _Beginning(0, None)
    _, cache = _forward(model, paths[0].ids[None, :length], None, [])
    return _Beginning(length, cache)


def _can_share(model: Any) -> bool:  # noqa: ANN401 # a transformers.PreTrainedModel
    """Whether all layers are attention: other layers (linear attention, Mamba) have one state per whole row."""
    kinds = getattr(model.config.get_text_config(), "layer_types", None)
    return kinds is None or _ATTENTION.issuperset(kinds)


def _batches(paths: Sequence[_Path]) -> Iterator[list[_Path]]:
    """Group neighboring rows into batches whose tokens are within the budget."""
    batch: list[_Path] = []
    width = 0
    for path in paths:
        width = max(width, len(path.ids))
        if batch and (len(batch) + 1) * width > _TOKENS:
            yield batch
            batch, width = [], len(path.ids)
        batch.append(path)
    if batch:
        yield batch


def _common(first: NDArray[np.int32], second: NDArray[np.int32]) -> int:
    size = min(len(first), len(second))
    differs = np.flatnonzero(first[:size] != second[:size])
    return int(differs[0]) if len(differs) else size


def _read_batch(
    model: Any,  # noqa: ANN401 # a transformers.PreTrainedModel
    paths: Sequence[_Path],
    beginning: _Beginning,
    wanted: Sequence[WantedTokens],
    plain: list[NDArray[np.float64]],
    tempered: list[NDArray[np.float64]],
) -> None:
    """Read the rows of a batch, segment by segment, and take the logprobs of the wanted tokens."""
    ids = np.zeros((len(paths), max(len(path.ids) for path in paths)), np.int32)  # zeros after a row's end are not used
    for number, path in enumerate(paths):
        ids[number, : len(path.ids)] = path.ids
    entries = sorted(
        _WantedToken(int(position), number, request, place)
        for number, path in enumerate(paths)
        for request in path.wanted
        for place, position in enumerate(wanted[request].positions)
    )
    cache = copy.deepcopy(beginning.cache)
    row_of = np.zeros(len(paths), np.int64)  # of each path, in the cache
    for start, stop in _segments(model, paths, entries, beginning.length):
        here = [entry for entry in entries if start < entry.position <= stop]
        alive = np.unique([entry.path for entry in entries if entry.position > start])
        # Paths that shared a row so far, and have equal ids in this segment, share a row again.
        keys = np.column_stack([row_of[alive], ids[alive, start:stop]])
        _, first, row = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        if cache is not None:
            cache.batch_select_indices(torch.from_numpy(row_of[alive[first]]).to(model.device))
        row_of[alive] = row.reshape(-1)
        # The logprob of a token comes from the logits at the place before it.
        columns = sorted({entry.position - 1 - start for entry in here})
        logits, cache = _forward(model, ids[alive[first], start:stop], cache, columns)
        if here:
            in_row = row_of[[entry.path for entry in here]]
            in_column = np.searchsorted(columns, [entry.position - 1 - start for entry in here])
            targets = ids[[entry.path for entry in here], [entry.position for entry in here]]
            temperatures = np.array([wanted[entry.request].temperatures[entry.place] for entry in here])
            one, other = _gather(logits, in_row, in_column, targets, temperatures)
            for entry, logprob, at_temperature in zip(here, one, other, strict=True):
                plain[entry.request][entry.place] = logprob
                tempered[entry.request][entry.place] = at_temperature


def _gather(
    logits: Any,  # noqa: ANN401 # a tensor
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    targets: NDArray[np.int32],
    temperatures: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The logprobs of targets from the logits, at temperature 1 and at each target's own. Shape: (targets,) each."""
    places = tuple(torch.from_numpy(each.astype(np.int64)).to(logits.device) for each in (rows, columns, targets))
    scores = logits.float()
    plain = scores.log_softmax(-1)[places].double().cpu().numpy()
    tempered = plain.copy()
    for temperature in np.unique(temperatures[temperatures != 1]):
        at = temperatures == temperature
        tempered[at] = (scores / float(temperature)).log_softmax(-1)[places].double().cpu().numpy()[at]
    return plain, tempered


def _segments(
    model: Any,  # noqa: ANN401 # a transformers.PreTrainedModel
    paths: Sequence[_Path],
    entries: Sequence[_WantedToken],
    start: int,
) -> Iterator[tuple[int, int]]:
    """The begins and ends of segments: cut where rows part, to read little twice, and before too many logits."""
    end = entries[-1].position  # the last token of all is not read
    if not _can_share(model):
        yield 0, end
        return
    vocabulary = model.get_input_embeddings().weight.shape[0]
    columns = {entry.position - 1 for entry in entries}
    lengths = np.zeros(len(paths), np.int64)
    for entry in entries:
        lengths[entry.path] = max(lengths[entry.path], entry.position)
    # From the place where it differs from its neighbor, a path needs a row of its own.
    differs = np.array([0, *(_common(one.ids, other.ids) for one, other in pairwise(paths))])
    needed = scored = 0
    begin = start
    for column in range(start, end):
        rows = int(np.count_nonzero((differs <= column) & (lengths > begin)))
        needed += int(np.count_nonzero((differs <= column) & (lengths > column)))
        scored += column in columns
        if column > begin and (
            rows * (column + 1 - begin) - needed > _WASTE or (scored > 1 and rows * scored * vocabulary > _LOGITS)
        ):
            yield begin, column
            begin, scored = column, int(column in columns)
            needed = int(np.count_nonzero((differs <= column) & (lengths > column)))
    yield begin, end


def _forward(
    model: Any,  # noqa: ANN401 # a transformers.PreTrainedModel
    ids: NDArray[np.int32],
    cache: Any,  # noqa: ANN401 # a transformers.Cache
    columns: Sequence[int],
) -> tuple[Any, Any]:
    """The logits at some columns of the ids, shape (rows, columns, vocabulary), and the cache after them."""
    parameters = inspect.signature(model.forward).parameters
    # transformers renames it with 5.40.
    cache_name = "cache" if "cache" in parameters else "past_key_values"
    options: dict[str, Any] = {cache_name: cache, "use_cache": True}
    keeps = "logits_to_keep" in parameters
    if keeps:
        # A model that is asked for no logits gives those of every token, so one is asked for.
        options["logits_to_keep"] = torch.tensor(columns or [0], device=model.device)
    answer = model(torch.from_numpy(ids.astype(np.int64)).to(model.device), **options)
    return answer.logits if keeps else answer.logits[:, columns or [0]], answer[cache_name]
