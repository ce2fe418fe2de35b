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
        for turn in answer(client, f"rollouts/{key}/tokens")["turns"]:
            assert turn["texts"] == [TEXTS[token] for token in turn["ids"]]
            assert turn["contextTexts"] == [TEXTS[token] for token in turn["context"]]
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
            shown = answer(client, f"rollouts/{row['key']}")
            begin = min(one.start_ns for one in (*trajectory.calls, *trajectory.tool_calls))
            begin = min(begin, trajectory.started_at or begin)
            assert Counter(map(times, shown["spans"])) == Counter(
                ((one.start_ns - begin) / 1e6, (one.end_ns - begin) / 1e6) for one in spans
            )
            of_calls = {call.span_id: at for at, call in enumerate(trajectory.calls)}
            names = Counter((span.name, of_calls.get(span.span_id)) for span in spans)
            assert Counter((entry["name"], entry["call"]) for entry in shown["spans"]) == names
            # Each stands below the span that began it.
            depths = {span.span_id: span for span in spans}
            deepest = max(entry["depth"] for entry in shown["spans"])
            assert deepest == max(depth_of(span, depths) for span in spans) > 0


def depth_of(span, spans):
    """How many of these spans are above a span."""
    above = spans.get(span.parent_span_id)
    return 0 if above is None else 1 + depth_of(above, spans)


def spans_of(recording):
    """The spans of a recording, each once."""
    records = (record for each in find_inputs([str(recording)]) for record in read_file(each, FileStats()))
    return list({record.key: record for record in records if isinstance(record, Span)}.values())


def times(entry):
    return entry["startMs"], entry["endMs"]
