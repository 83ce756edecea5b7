"""Settings: Kafka's names and defaults, and what is said of wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator_udf.settings.coordinator import Settings, SettingsError
from coordinator_udf.settings.file import load_settings, topic_id


def test_defaults_are_kafkas() -> None:
    settings = Settings.from_kafka({})
    assert settings.group_initial_rebalance_delay_ms == 3_000
    assert settings.group_max_session_timeout_ms == 1_800_000
    assert settings.offsets_retention_ms == 7 * 24 * 3_600_000


def test_text_is_read_as_the_settings_type() -> None:
    settings = Settings.from_kafka({"group.max.size": "5", "group.consumer.assignors": "range, uniform"})
    assert settings.group_max_size == 5
    assert settings.group_consumer_assignors == ("range", "uniform")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("group.max.sice", 5, "group.max.sice"),
        ("group.max.size", "many", "group.max.size is 'many', expected a whole number"),
        ("group.max.size", True, "group.max.size is True"),
        ("group.max.size", -1, "group.max.size is -1"),
        ("offsets.topic.partition.check", "perhaps", "expected true or false"),
        ("group.min.session.timeout.ms", 1_800_001, "group.max.session.timeout.ms"),
    ],
)
def test_a_wrong_setting_is_named_with_its_value(name: str, value: object, said: str) -> None:
    with pytest.raises(SettingsError, match=said.replace("(", r"\(").replace(".", r"\.")):
        Settings.from_kafka({name: value})


def test_a_file_has_kafkas_names_and_topics_and_a_command_line_wins(tmp_path: Path) -> None:
    path = tmp_path / "coordinator.toml"
    path.write_text('group.max.size = 7\ngroup.min.session.timeout.ms = 10\n[[topics]]\nname = "t"\npartitions = 4\n')
    config = load_settings(path, ["group.max.size=9"])
    assert config.settings.group_max_size == 9
    assert config.settings.group_min_session_timeout_ms == 10
    assert [(topic.name, topic.partitions, topic.id) for topic in config.topics] == [("t", 4, topic_id("t"))]


def test_who_names_topics_has_commits_to_others_refused(tmp_path: Path) -> None:
    path = tmp_path / "coordinator.toml"
    path.write_text('[[topics]]\nname = "t"\n')
    assert load_settings(path).settings.offsets_topic_partition_check
    assert not load_settings(path, ["offsets.topic.partition.check=false"]).settings.offsets_topic_partition_check
    assert not load_settings(None).settings.offsets_topic_partition_check


@pytest.mark.parametrize(
    "text", ["group.max.size = ", "[[topics]]\npartitions = 3\n", '[[topics]]\nname="t"\npartitions=0\n']
)
def test_a_file_that_says_nothing_sensible_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "coordinator.toml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=r"topics|coordinator\.toml"):
        load_settings(path)


def test_a_file_that_is_not_there_and_a_setting_without_value_are_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.toml"):
        load_settings(tmp_path / "nowhere.toml")
    with pytest.raises(SettingsError, match="name=value"):
        load_settings(None, ["group.max.size"])
