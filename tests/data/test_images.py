"""Token ids hold no more of images, audio and files than placeholders: what was sampled behind them is left out."""

import json

import pytest

import art_otel
from art_otel.calls import Message, TokenIds, media_in
from art_otel.errors import UsageError
from art_otel.store import read_trajectories
from art_otel.trajectories.lineage import build_lineage
from tests.conventions.builders import call as parsed_call
from tests.data.rollouts import rollout
from tests.trajectories.calls import asked, choice

PNG = "iVBORw0KGgo="
USER = [{"type": "text", "text": "what is this?"}]
CAT = choice("cat", [7, 8])


def message(*parts, role="user", **fields) -> Message:
    return Message(role=role, content="what is this?", parts=json.dumps([*USER, *parts]), **fields)


def browsing():
    """A call of text; one whose tool gave a screenshot; one that goes on from there."""
    question = Message(role="user", content="q")
    screen = message({"type": "image", "data": PNG}, role="tool", tool_call_id="c")
    path = [question, Message(role="assistant", content="cat"), screen]
    ids = [1, 7, 8, 2, 2]
    return [
        asked(1, [question], [1], [CAT]),
        asked(2, path, ids, [CAT]),
        asked(3, [*path, Message(role="assistant", content="cat"), question], [*ids, 7, 8, 1], [CAT]),
    ]


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}, "image"),
        ({"type": "input_image", "image_url": "https://example.org/a.png"}, "image"),
        ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}, "image"),
        ({"type": "input_audio", "input_audio": {"data": PNG, "format": "wav"}}, "audio"),
        ({"type": "file", "file": {"file_data": PNG, "filename": "a.pdf"}}, "file"),
        ({"inlineData": {"mimeType": "video/mp4", "data": PNG}}, "video"),
        ({"type": "computer_screenshot", "image_url": "https://example.org/a.png"}, "image"),
    ],
)
def test_media_of_every_spelling(part, kind):
    recorded = json.dumps([{"role": "user", "content": [*USER, part]}])
    found = parsed_call({"art.request.messages": recorded, "gen_ai.operation.name": "chat"})
    assert media_in(found.input_messages) == (kind,)


def test_text_in_several_parts_is_no_media():
    assert media_in([Message(role="user", parts=json.dumps([*USER, *USER]))]) == ()
    assert media_in([Message(role="user", parts="no JSON")]) == ()


def test_a_call_has_the_media_of_its_whole_prompt_and_a_dataset_says_so_without_messages(tmp_path):
    calls = build_lineage(browsing()).calls
    assert [call.media for call in calls] == [(), ("image",), ("image",)]
    art_otel.write_trajectories([rollout(browsing())], tmp_path)
    (read,) = read_trajectories(tmp_path, messages=False, tokens=False)
    assert [call.media for call in read.calls] == [(), ("image",), ("image",)]


def test_completions_behind_images_are_left_out_unless_placeholders_are_wanted():
    batches = art_otel.batches([rollout(browsing())], advantage=None)
    (batch,) = batches
    assert batch.loss_mask.sum() == 2
    assert batches.report.completions_skipped == {"images not carried": 2}
    (batch,) = art_otel.batches([rollout(browsing())], advantage=None, images="placeholders")
    assert batch.loss_mask.sum() == 6
    with pytest.raises(UsageError, match="images='keep'"):
        art_otel.batches([], images="keep")


def test_files_and_memory_agree(tmp_path):
    art_otel.write_trajectories([rollout(browsing())], tmp_path)
    batches = art_otel.batches(tmp_path, advantage=None)
    batches.decision_columns()
    assert batches.report.completions_skipped == {"images not carried": 2}
    assert sum(batch.loss_mask.sum() for batch in batches) == 2


def test_rewards_still_compare_what_is_left_out():
    def one(rollout_id: str, reward: float, calls):
        return rollout(calls, rollout_id, group_id="g", reward=reward)

    seeing = [asked(1, [message({"type": "image", "data": PNG})], [1, 2], [CAT])]
    found = [one("a", 0.0, [asked(1, [Message(role="user", content="q")], [1], [CAT])]), one("b", 1.0, seeing)]
    (batch,) = art_otel.batches(found, advantage="centered")
    assert batch.rollout_ids.tolist() == ["a"]
    assert batch.advantages[batch.loss_mask].tolist() == [-0.5, -0.5]
    assert TokenIds.of([7, 8]) == found[1].turns[0].token_ids
