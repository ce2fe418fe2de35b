"""What `--tokenizer` and `--spans` add to a rollout: texts of its token ids, and all spans of its traces."""

from collections import Counter

import pytest

from art_otel.errors import UsageError
from art_otel.sources import FileStats, find_inputs, read_file
from art_otel.spans import Span
from art_otel.store import read_trajectories
from art_otel.viewer.tokens import Tokenizer
from tests.conversions import RECORDINGS, convert_files, with_logs
from tests.viewer.served import answer, dataset, viewer

TEXTS = ("<s>", "<script>", "\u202eb", "c", " d", "e", "f", "g", "h", "i")


@pytest.fixture(params=["file", "folder"])
def tokenizer(tmp_path, request):
    """A `tokenizer.json`, or the folder of one as transformers saves it, in which ids 0 to 9 are TEXTS."""
    tokenizers = pytest.importorskip("tokenizers")
    model = tokenizers.models.WordLevel({text: token for token, text in enumerate(TEXTS)}, unk_token=TEXTS[0])
    made = tokenizers.Tokenizer(model)
    made.add_special_tokens([TEXTS[0]])
    made.decoder = tokenizers.decoders.Fuse()
    if request.param == "file":
        made.save(str(tmp_path / "tokenizer.json"))
        return tmp_path / "tokenizer.json"
    transformers = pytest.importorskip("transformers")
    transformers.PreTrainedTokenizerFast(tokenizer_object=made).save_pretrained(tmp_path / "saved")
    return tmp_path / "saved"


@pytest.mark.long
def test_each_token_has_its_text_and_drift_is_shown_as_texts(tmp_path, tokenizer):
    with viewer(dataset(tmp_path / "dataset"), "--tokenizer", tokenizer) as client:
        assert answer(client, "info")["hasTokenizer"]
        key = next(row["key"] for row in answer(client, "trajectories")["rows"] if row["rolloutId"] == "drifts")
        path = f"rollouts/{key}/tokens"
        for history in answer(client, path)["histories"]:
            shown = answer(client, path, history=history["index"])
            assert shown["texts"] == [TEXTS[token] for token in shown["ids"]]
        drift = answer(client, f"rollouts/{key}")["turns"][1]["drift"]
        assert (drift["expectedText"], drift["actualText"]) == ("c d", "ie")


def test_a_tokenizer_that_cannot_be_loaded_is_named(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    for path in (tmp_path / "tokenizer.json", tmp_path / "missing"):
        with pytest.raises(UsageError, match=str(path)):
            Tokenizer(path)


@pytest.mark.long
@pytest.mark.parametrize(
    "recording", sorted(RECORDINGS.glob("*/async_tools.jsonl"))[:3], ids=lambda path: path.parent.name
)
def test_all_spans_of_a_rollout_are_shown_once_with_their_times(tmp_path, recording):
    convert_files(tmp_path / "dataset", *with_logs(recording))
    with viewer(tmp_path / "dataset", "--spans", recording) as client:
        assert answer(client, "info")["hasSpans"]
        rows = answer(client, "trajectories")["rows"]
        assert rows
        for row, trajectory in zip(rows, read_trajectories(tmp_path / "dataset"), strict=True):
            traces = {trajectory.trace_id, *(call.trace_id for call in trajectory.calls)}
            spans = [span for span in spans_of(recording) if span.trace_id in traces]
            time = answer(client, f"rollouts/{row['key']}")["time"]
            begin = min(span.start_ns for span in spans)
            shown = Counter(times(entry) for entry in time if entry["kind"] in ("span", "call", "tool"))
            assert shown == Counter(((one.start_ns - begin) / 1e6, (one.end_ns - begin) / 1e6) for one in spans)
            others = {one.span_id for one in (*trajectory.calls, *trajectory.tool_calls)}
            names = Counter(span.name for span in spans if span.span_id not in others)
            assert Counter(entry["name"] for entry in time if entry["kind"] == "span") == names != {}


def spans_of(recording):
    """The spans of a recording, each once."""
    records = (record for each in find_inputs([str(recording)]) for record in read_file(each, FileStats()))
    return list({record.key: record for record in records if isinstance(record, Span)}.values())


def times(entry):
    return entry["startMs"], entry["endMs"]
