"""Settings: Kafka's names and defaults, and what is said of wrong ones."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from coordinator_udf.settings.coordinator import FIELDS, MigrationPolicy, Settings, SettingsError
from coordinator_udf.settings.file import load_settings, topic_id

ROOT = Path(__file__).parents[2]


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
        ("group.max.sice", 5, "unknown setting 'group.max.sice': did you mean group.max.size"),
        ("x", 5, "unknown setting 'x': none is near; all are in conf/coordinator.toml"),
        ("group.max.size", "many", "group.max.size is 'many', expected a whole number"),
        ("group.max.size", True, "group.max.size is True"),
        ("group.max.size", 0, "group.max.size is 0, expected a whole number from 1 to 2147483647"),
        ("group.max.size", 2**31, "group.max.size is 2147483648, expected a whole number from 1 to 2147483647"),
        ("group.max.size", "5.0", "group.max.size is '5.0', expected a whole number"),
        ("group.max.size", 5.0, "group.max.size is 5.0, expected a whole number"),
        ("offsets.retention.minutes", 0, "offsets.retention.minutes is 0, expected a whole number from 1"),
        ("group.consumer.regex.refresh.interval.ms", 9_999, "is 9999, expected a whole number from 10000"),
        ("group.consumer.assignor.offload.enable", True, "unknown setting 'group.consumer.assignor.offload.enable'"),
        (
            "group.consumer.session.timeout.ms",
            44_999,
            "group.consumer.min.session.timeout.ms is 45000, expected at most",
        ),
        ("group.consumer.session.timeout.ms", 60_001, "group.consumer.session.timeout.ms is 60001, expected at most"),
        ("group.consumer.min.session.timeout.ms", 60_001, "is 60001, expected at most group.consumer.max.session"),
        ("group.consumer.heartbeat.interval.ms", 4_999, "group.consumer.min.heartbeat.interval.ms is 5000"),
        (
            "group.consumer.max.heartbeat.interval.ms",
            4_999,
            "expected at most group.consumer.max.heartbeat.interval.ms",
        ),
        ("group.consumer.assignment.interval.ms", 15_001, "group.consumer.assignment.interval.ms is 15001"),
        ("group.consumer.migration.policy", "upgarde", "is 'upgarde', expected one of bidirectional, upgrade"),
        ("group.consumer.migration.policy", 3, "is 3, expected one of bidirectional, upgrade, downgrade, disabled"),
        ("group.consumer.assignors", "range,sticky", "['range', 'sticky']: 'sticky' is no assignor, expected uniform"),
        ("group.consumer.assignors", "range,range", "'range' is a second 'range', expected each assignor once"),
        ("group.consumer.assignors", [], "expected at least one assignor"),
        ("group.consumer.assignors", [1], "group.consumer.assignors is [1], expected a list of names"),
        ("offsets.topic.partition.check", "perhaps", "expected true or false"),
        ("group.min.session.timeout.ms", 1_800_001, "group.max.session.timeout.ms"),
    ],
)
def test_a_wrong_setting_is_named_with_its_value(name: str, value: object, said: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(said)):
        Settings.from_kafka({name: value})


def test_a_file_has_kafkas_names_and_topics_and_a_command_line_wins(tmp_path: Path) -> None:
    path = tmp_path / "coordinator.toml"
    path.write_text('group.max.size = 7\ngroup.min.session.timeout.ms = 10\n[[topics]]\nname = "t"\npartitions = 4\n')
    config = load_settings(path, ["group.max.size=9"])
    assert config.settings.group_max_size == 9
    assert config.settings.group_min_session_timeout_ms == 10
    assert [(topic.name, topic.partitions, topic.id) for topic in config.topics] == [("t", 4, topic_id("t"))]


def test_a_file_may_begin_with_a_byte_order_mark_and_have_dos_lines(tmp_path: Path) -> None:
    path = tmp_path / "coordinator.toml"
    path.write_bytes(b"\xef\xbb\xbfgroup.max.size = 7\r\n")
    assert load_settings(path).settings.group_max_size == 7


def test_who_names_topics_has_commits_to_others_refused(tmp_path: Path) -> None:
    path = tmp_path / "coordinator.toml"
    path.write_text('[[topics]]\nname = "t"\n')
    assert load_settings(path).settings.offsets_topic_partition_check
    assert not load_settings(path, ["offsets.topic.partition.check=false"]).settings.offsets_topic_partition_check
    assert not load_settings(None).settings.offsets_topic_partition_check


@pytest.mark.parametrize(
    "text",
    [
        "group.max.size = ",
        "[[topics]]\npartitions = 3\n",
        '[[topics]]\nname="t"\npartitions=0\n',
        '[[topics]]\nname="t"\npartitions=true\n',
        '[[topics]]\nname="t"\n[[topics]]\nname="t"\n',
        '[[topics]]\nname="t"\nid="x"\n',
        '[[topics]]\nname="t"\npartitons=3\n',
        'topics = "t"\n',
        '[[topics]]\nname="a b"\n',
        '[[topics]]\nname=".."\n',
        '[[topics]]\nname="t"\nid="AAAAAAAAAAAAAAAAAAAAAA"\n',
        '"group.max.size" = 7\n[group]\n"max.size" = 8\n',
    ],
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


def test_a_setting_with_two_values_is_named_with_both() -> None:
    with pytest.raises(SettingsError, match=r"group\.max\.size is set twice, to '3' and to '4'"):
        load_settings(None, ["group.max.size=3", "group.max.size = 4"])
    assert load_settings(None, ["group.max.size=3", "group.max.size = 3"]).settings.group_max_size == 3


def test_a_policy_is_read_in_whatever_case_as_in_kafka() -> None:
    settings = Settings.from_kafka({"group.consumer.migration.policy": "UPGRADE"})
    assert settings.group_consumer_migration_policy is MigrationPolicy.UPGRADE
    assert settings.allows_online_upgrade()
    assert not settings.allows_online_downgrade()


def test_the_shipped_file_shows_every_setting_with_its_default(tmp_path: Path) -> None:
    written = runpy.run_path(str(ROOT / "scripts" / "write_settings"))["written"]()
    shipped = ROOT / "conf" / "coordinator.toml"
    assert shipped.read_text("utf-8") == written, "run scripts/write_settings"
    chosen = tmp_path / "all.toml"
    chosen.write_text(re.sub(r"^#(?=[a-z.]+ = )", "", written, flags=re.MULTILINE).partition("# The topics")[0])
    assert load_settings(chosen).settings == load_settings(shipped).settings == Settings()


def test_every_setting_is_read_by_something() -> None:
    code = "".join(path.read_text("utf-8") for path in (ROOT / "coordinator_udf").rglob("*.py"))
    read = {
        field.name
        for field in FIELDS.values()
        if re.search(rf"(settings|limits|self)\.{field.name}\b", code)
        or re.search(rf'group_setting\([^)]*"{field.name.removeprefix("group_")}"', code)
    }
    # The bounds of what a group may set for itself are looked up by the name of what they bound.
    bounds = {field.name for field in FIELDS.values() if re.search(r"consumer_(min|max)_\w+_ms$", field.name)}
    assert read | bounds == {field.name for field in FIELDS.values()}
    own = Settings().of_group({f"consumer.{name}.ms": 1 for name in ("session.timeout", "heartbeat.interval")})
    assert own == {"consumer_session_timeout_ms": 45_000, "consumer_heartbeat_interval_ms": 5_000}
    assert Settings().of_group({"consumer.assignment.interval.ms": 99_999}) == {
        "consumer_assignment_interval_ms": 15_000
    }


def test_a_misspelt_setting_is_told_what_is_near_it() -> None:
    with pytest.raises(SettingsError, match=re.escape("'group.max.sise': did you mean group.max.size, ")):
        Settings.from_kafka({"group.max.sise": 3})
