"""What was set aside is named in a few words, however long the names in it are."""

from art_otel.spans import Quarantined


def test_a_damage_is_as_short_as_can_be_read():
    damage = Quarantined(reason="bad reward", path="p" * 10_000, detail="d" * 10_000)
    assert (len(damage.path), len(damage.detail)) == (1001, 301)
    assert damage.path.endswith("p…")
