"""The store, on SQLite and on a real PostgreSQL server alike."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from services import Postgres

from fuzz import corpus
from fuzz.campaign.store import (
    Campaign,
    Coverage,
    FindingRecord,
    Heartbeat,
    Job,
    Occurrence,
    Statistic,
    Store,
    Submission,
    rebuild,
)
from fuzz.campaign.store.rebuild import finding_of
from fuzz.campaign.store.schema import parse_url
from fuzz.campaign.store.tables import metadata
from fuzz.errors import RefusedWrite, StoreError, UsageError
from fuzz.model.case import Case
from fuzz.model.entry import Entry
from fuzz.model.grade import Grade

FINDING = FindingRecord(
    "dx-sign-1", "corpus", "t/dx-sign-1.yaml", "t", "accuracy", "dx", "sign", "dx: wrong", "kernel", "open", "",
    {"N": 3}, 6, "sign flipped", 10.0, 10.0,
)  # fmt: skip


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    with Store(store_url) as opened:
        yield opened


@pytest.fixture
def campaign(store: Store) -> Campaign:
    return store.create_campaign("nightly", '{"workers": 2}', "corpus", 5.0, "host", 77)


def occurrence(finding: str, key: str, campaign: int | None = None, hits: int = 1) -> Occurrence:
    return Occurrence(finding, key, 11.0, campaign, "cpu", "random", 1 << 40, 12, hits, False, {"torch": "2"})


def test_what_is_written_is_read(store: Store, campaign: Campaign) -> None:
    lane = Job(
        campaign.id, "t", "", "cpu", "random", 7, 3, 1 << 40, 1, 2.5, 1, cells=("a", "b"), possible=4, note="é'\""
    )
    heartbeat = Heartbeat(campaign.id, "1", "host", 12, "fuzzing", "t", 3, 1e9, 5.25, "boot")
    statistic = Statistic(campaign.id, "t", "", "cpu", "random", 7, 0, 1e9, 2.5, 100, 40.0, 1, 0.99, 0.5)
    for record in (lane, heartbeat, statistic):
        store.save(record)
    store.save_finding(FINDING, occurrence(FINDING.id, "1", campaign.id))
    assert store.find(Campaign, campaign.id) == campaign and store.read(Campaign) == [campaign]
    assert store.read(Job, campaign=campaign.id) == [lane] and lane.share == 0.5 and lane.rate == (1 << 40) / 2.5
    assert store.read(Heartbeat) == store.read(Heartbeat, campaign=campaign.id) == [heartbeat]
    (counted,) = store.statistics(campaign.id)
    assert counted == replace(statistic, id=counted.id) and store.statistics(after=counted.id) == []
    assert store.find(FindingRecord, FINDING.id) == replace(FINDING, hits=1)
    assert store.read(Occurrence, finding=FINDING.id) == [occurrence(FINDING.id, "1", campaign.id)]
    assert store.find(Campaign, 99) is store.find(FindingRecord, "nothing") is None


def test_coverages_are_read_in_the_order_of_writing_and_count_once(store: Store, campaign: Campaign) -> None:
    first = Coverage(
        campaign.id, "t", "", "cpu", "auto", 0, 1, 1e9, 2.5, 50, 1, *(8, 9), *(3, 6), *(1, 2), blockers='[{"line": 3}]'
    )
    for measured in (first, first, replace(first, number=2, lines_run=9)):
        store.save(measured)
    found = store.read(Coverage, campaign=campaign.id)
    assert [replace(each, id=0) for each in found] == [first, replace(first, number=2, lines_run=9)]
    assert store.read(Coverage, campaign=campaign.id + 1) == []


def test_a_sample_of_statistics_is_even_and_ends_where_every_job_does(store: Store, campaign: Campaign) -> None:
    other = store.create_campaign("other", "{}", "corpus", 5.0, "host", 77)
    for number in range(40):
        for owner, target in ((campaign, "early"), (other, "t"), (campaign, "late")):
            if target != "early" or number < 9:
                store.save(
                    Statistic(owner.id, target, "", "cpu", "", 0, number, float(number), 1.0, number, 1.0, 0, 0.5, 0.1)
                )
    every = [one for one in store.statistics() if one.campaign == campaign.id]
    assert store.sample_statistics(campaign.id, 100) == every and len(every) == 49
    found = store.sample_statistics(campaign.id, 10)
    assert found == sorted(found, key=lambda one: one.id) and 10 <= len(found) <= 12
    assert found[0] == every[0] and {one.target: one.cases for one in found} == {"early": 8, "late": 39}
    assert store.sample_statistics(campaign.id + 100) == []


def test_a_write_that_is_repeated_counts_once(store: Store, campaign: Campaign) -> None:
    for _ in range(3):
        store.save_finding(FINDING, occurrence(FINDING.id, "1", campaign.id, hits=5))
        store.save(Statistic(campaign.id, "t", "", "cpu", "random", 7, 0, 1.0, 2.5, 100, 40.0, 1, 0.99, 0.5))
        store.save(replace(campaign, state="stopped", seconds=9.5))
    store.save_finding(
        replace(FINDING, last_seen=20.0, first_seen=20.0), occurrence(FINDING.id, "2", campaign.id, hits=2)
    )
    assert store.find(FindingRecord, FINDING.id) == replace(FINDING, hits=7, last_seen=20.0)
    assert len(store.statistics()) == 1
    assert [(campaign.state, campaign.seconds) for campaign in store.read(Campaign, name="nightly")] == [
        ("stopped", 9.5)
    ]


def test_findings_are_chosen_by_what_they_are(store: Store, campaign: Campaign) -> None:
    other = replace(FINDING, id="y-value-2", symptom="value", status="fixed", message="50% _off", last_seen=99.0)
    store.save_finding(FINDING, occurrence(FINDING.id, "1", campaign.id))
    store.save_finding(other)
    names = [finding.id for finding in store.findings()]
    assert names == [other.id, FINDING.id] and store.count_findings() == 2
    assert [finding.id for finding in store.findings(limit=1, offset=1)] == [FINDING.id]
    assert [finding.id for finding in store.findings(status="fixed", symptom="value")] == [other.id]
    assert [finding.id for finding in store.findings(campaign=campaign.id)] == [FINDING.id]
    assert [finding.id for finding in store.findings(text="DX-SIGN")] == [FINDING.id]
    assert [finding.id for finding in store.findings(text="% _o")] == [other.id]
    assert store.findings(text="'; DROP TABLE findings; --") == [] and store.count_findings(target="t") == 2
    with pytest.raises(StoreError, match="findings have no 'nonsense'"):
        store.findings(nonsense="1")


def test_a_smaller_case_takes_the_place_of_a_finding(store: Store, campaign: Campaign) -> None:
    store.save_finding(FINDING, occurrence(FINDING.id, "1", campaign.id))
    small = replace(FINDING, id="dx-sign-0", elements=1, first_seen=12.0)
    store.save_finding(small, occurrence(small.id, "2", campaign.id), replaces=FINDING.id)
    store.save_finding(small, occurrence(small.id, "2", campaign.id), replaces=FINDING.id)
    (left,) = store.findings()
    assert (left.id, left.elements, left.first_seen, left.hits) == ("dx-sign-0", 1, 10.0, 2)
    both = replace(FINDING, id="dx-sign-9")
    store.save_finding(both, occurrence(both.id, "3"))
    store.save_finding(small, None, replaces=both.id)
    assert [occurrence.key for occurrence in store.read(Occurrence, finding=small.id)] == [
        "1",
        "2",
        "3",
    ] and store.count_findings() == 1


def test_a_smaller_case_that_another_campaign_saves_at_that_moment_becomes_one_finding(server: Postgres) -> None:
    url, small = server.database(), replace(FINDING, id="dx-sign-0", first_seen=12.0)
    with Store(url) as store, Store(url) as other:
        store.save_finding(FINDING, occurrence(FINDING.id, "1"))

        def save_meanwhile(*given: Any) -> None:
            if given[2].startswith("UPDATE findings SET id="):
                other.save_finding(small, occurrence(small.id, "2"))

        sa.event.listen(store.engine, "before_cursor_execute", save_meanwhile)
        store.save_finding(small, occurrence(small.id, "3"), replaces=FINDING.id)
        assert store.findings() == [replace(small, first_seen=10.0, hits=3, last_seen=10.0)]
        assert [one.key for one in store.read(Occurrence, finding=small.id)] == ["1", "2", "3"]
        assert store.current_id(FINDING.id) == small.id


def test_findings_that_become_one_were_seen_when_the_first_of_them_was(store: Store) -> None:
    store.save_finding(FINDING)
    store.save_finding(replace(FINDING, id="later", first_seen=12.0))
    store.save_finding(replace(FINDING, id="later", first_seen=13.0), replaces=FINDING.id)
    assert [(found.id, found.first_seen) for found in store.findings()] == [("later", 10.0)]


def test_former_ids_lead_to_the_finding_that_took_their_place(store: Store) -> None:
    store.save_finding(replace(FINDING, id="c3"))
    store.save_finding(replace(FINDING, id="c2"), replaces="c3")
    store.save_finding(replace(FINDING, id="c1"), replaces="c2")
    store.save_finding(replace(FINDING, id="other"))
    store.save_finding(replace(FINDING, id="c1"), replaces="other")
    store.save_finding(replace(FINDING, id="never stored"), replaces="c1")
    former = ["c3", "c2", "c1", "other", "never stored", "nothing"]
    assert [store.current_id(name) for name in former] == ["never stored"] * 4 + ["", ""]
    store.remove(FindingRecord, id="never stored")
    assert store.current_id("c3") == ""


def test_a_store_of_the_first_version_is_upgraded_with_what_it_holds(store_url: str) -> None:
    with Store(store_url) as old:
        old.save_finding(FINDING)
        old.save(Job(old.create_campaign("n", "{}", "corpus", 1.0, "h", 1).id, "gelu_bw", "", "cpu", "auto", 0))
        later = {"findings": ("severity", "input_class"), "lanes": ("agreeing", "regressed")}
        columns = (f"ALTER TABLE {table} DROP COLUMN {name}" for table, names in later.items() for name in names)
        tables = (f"DROP TABLE {name}" for name in ("former_ids", "submissions", "coverages"))
        with old.engine.begin() as connection:
            for statement in (*columns, *tables, "UPDATE alembic_version SET version_num = '1'"):
                connection.execute(sa.text(statement))
    with Store(store_url) as store, store.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    with Store(store_url) as store:
        assert store.find(FindingRecord, FINDING.id) == FINDING
        assert [(job.target, job.agreeing, job.regressed) for job in store.read(Job)] == [("gelu_bw", (), ())]
        store.save_finding(replace(FINDING, id="smaller"), replaces=FINDING.id)
        assert [found.id for found in store.findings()] == ["smaller"] and store.current_id(FINDING.id) == "smaller"


def test_a_replay_is_noted_and_a_finding_forgotten(store: Store) -> None:
    store.save_finding(FINDING, occurrence(FINDING.id, "1"))
    store.save_replay(FINDING.id, "agrees")
    store.save_finding(FINDING, occurrence(FINDING.id, "2"))
    assert [finding.id for finding in store.findings(replayed="agrees")] == [FINDING.id]
    store.remove(FindingRecord, id=FINDING.id)
    assert store.findings() == [] and store.read(Occurrence) == []


def test_the_age_of_a_heartbeat_survives_a_clock_that_jumps() -> None:
    heartbeat = Heartbeat(1, "1", "host", 12, "fuzzing", "t", 3, wall=1e9, ticks=100.0, boot="boot")
    assert heartbeat.age(wall=2e9, ticks=107.0, boot="boot") == 7.0
    assert heartbeat.age(wall=1e9 + 3, ticks=5.0, boot="another machine") == 3.0
    assert heartbeat.age(wall=1e9 - 3, ticks=5.0, boot="") == 0.0


def test_many_writers_at_once_lose_nothing(store_url: str) -> None:
    with Store(store_url) as first:
        number = first.create_campaign("n", "{}", "corpus", 1.0, "h", 1).id

    def write(writer: int) -> None:
        with Store(store_url) as store:
            for index in range(10):
                store.save_finding(FINDING, occurrence(FINDING.id, f"{writer}/{index}", number))
                store.save(
                    Statistic(number, f"t{writer}", "", "cpu", "random", 0, index, 1.0, 1.0, 1, 1.0, 0, 0.0, 0.0)
                )

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    with Store(store_url) as store:
        (found,) = store.findings()
        assert (found.hits, len(store.statistics())) == (40, 40)


def test_findings_are_made_again_from_the_corpus(
    store: Store, campaign: Campaign, entry: Entry, tmp_path: Path
) -> None:
    folder = tmp_path / "corpus"
    path = corpus.save_entry(folder, entry)
    made = finding_of(entry, path, folder, path.stat().st_mtime)
    store.save_finding(replace(FINDING, corpus=made.corpus))
    store.save_finding(replace(FINDING, id="elsewhere"))
    (folder / "torn.yaml").write_text("format: fuzz-case/1\ntarget: x")
    done = rebuild(store, folder)
    assert (done.findings, len(done.added), done.forgotten, len(done.unreadable)) == (1, 1, 1, 1)
    assert store.find(FindingRecord, made.id) == replace(made, hits=1)
    assert {finding.id for finding in store.findings()} == {made.id, "elsewhere"}
    store.save_finding(made, occurrence(made.id, "c1", campaign.id))
    corpus.mark(path, "fixed", "by 2.0")
    again = rebuild(store, folder)
    assert (again.added, again.forgotten) == ((), 0)
    (now,) = store.findings(status="fixed")
    assert (now.id, now.hits) == (made.id, 2)


def test_a_finding_to_which_a_campaign_gives_a_smaller_case_is_kept_by_a_rebuild_until_it_is_renamed(
    store: Store, entry: Entry, tmp_path: Path
) -> None:
    folder = tmp_path / "corpus"
    number = store.create_campaign("nightly", "{}", str(folder), 5.0, "host", 77).id
    path = corpus.save_entry(folder, entry)
    store.save_finding(finding_of(entry, path, folder, 5.0), occurrence(path.stem, "1", number))
    smaller = path.rename(path.with_name("smaller.yaml"))
    assert rebuild(store, folder).forgotten == 0
    store.save_finding(finding_of(entry, smaller, folder, 6.0), occurrence("smaller", "2", number), path.stem)
    assert [(found.id, found.first_seen) for found in store.findings()] == [("smaller", 5.0)]
    assert {"1", "2"} < {one.key for one in store.read(Occurrence, finding="smaller")}


@pytest.mark.parametrize("change", ["the folder is as it was for long", "the folder is gone", "the campaign has ended"])
def test_a_finding_whose_entry_no_campaign_can_be_replacing_is_forgotten(
    store: Store, entry: Entry, tmp_path: Path, change: str
) -> None:
    folder = tmp_path / "corpus"
    campaign = store.create_campaign("nightly", "{}", str(folder), 5.0, "host", 77)
    path = corpus.save_entry(folder, entry)
    rebuild(store, folder)
    path.unlink()
    assert rebuild(store, folder).forgotten == 0
    if change == "the folder is as it was for long":
        os.utime(path.parent, (0.0, 0.0))
    elif change == "the folder is gone":
        path.parent.rmdir()
    else:
        store.save(replace(campaign, state="stopped"))
    assert rebuild(store, folder).forgotten == 1 and store.findings() == []


def test_an_entry_that_is_replaced_while_a_rebuild_reads_is_not_said_to_be_unreadable(
    store: Store, entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, read = corpus.save_entry(tmp_path / "corpus", entry), corpus.read

    def replace_before(path: Path) -> Entry:
        path.rename(path.with_name("smaller.yaml"))
        return read(path)

    monkeypatch.setattr(corpus, "read", replace_before)
    assert rebuild(store, path.parent).unreadable == ()


def test_a_rebuild_writes_many_entries_at_once_and_none_that_is_as_it_was(
    store: Store, entry: Entry, tmp_path: Path
) -> None:
    folder, commits = tmp_path / "corpus", []
    path = corpus.save_entry(folder, entry)
    for number in range(20):
        (path.parent / f"dx-sign-{number:08}.yaml").write_text(path.read_text())
    sa.event.listen(store.engine, "commit", lambda connection: commits.append(is_write(connection)))
    assert len(rebuild(store, folder).added) == 21
    assert sum(commits) == 1
    statements = []
    sa.event.listen(store.engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    again = rebuild(store, folder)
    assert (again.findings, again.added, again.unreadable) == (21, (), ())
    assert not [line for line in statements if line.startswith(("INSERT", "UPDATE", "DELETE"))]


def test_of_two_entries_of_one_name_in_a_folder_the_first_is_the_finding(
    store: Store, entry: Entry, tmp_path: Path
) -> None:
    path = corpus.save_entry(tmp_path / "corpus", entry)
    for name in ("a", "z"):
        other = tmp_path / "corpus" / name / path.name
        other.parent.mkdir()
        other.write_text(path.read_text())
    assert len(rebuild(store, tmp_path / "corpus").added) == 1
    assert [found.path for found in store.findings()] == [f"a/{path.name}"]


def is_write(connection: sa.Connection) -> bool:
    return not connection.get_execution_options().get("reads", False)


def test_a_link_out_of_the_corpus_is_no_entry_of_a_rebuild(store: Store, entry: Entry, tmp_path: Path) -> None:
    """Nothing of what it leads to is said, and a finding that is such a link by now is forgotten."""
    folder = tmp_path / "corpus"
    path = corpus.save_entry(folder, entry)
    assert rebuild(store, folder).findings == 1
    (tmp_path / "secret").write_text("root:x:0:0\n")
    (path.parent / "link.yaml").symlink_to(tmp_path / "secret")
    path.rename(tmp_path / path.name)
    path.symlink_to(tmp_path / path.name)
    done = rebuild(store, folder)
    assert (done.findings, done.forgotten, done.unreadable) == (0, 1, ())


@pytest.mark.parametrize("text", ["bad magic \0 in cache", "caf\udce9", "\ud800"])
def test_text_that_databases_do_not_hold_is_stored_as_its_escape_sequence(
    store: Store, campaign: Campaign, text: str
) -> None:
    store.save_finding(replace(FINDING, message=text, path=text), occurrence(FINDING.id, text, campaign.id))
    store.save(Job(campaign.id, text, "", "cpu", "auto", 0, cells=(text,), note=text))
    (found,), (job,) = store.findings(), store.read(Job, campaign=campaign.id)
    assert found.message == found.path == job.note and "\\" in found.message and found.hits == 1


@pytest.mark.parametrize("elements", [1 << 63, 10**400])
def test_a_number_that_a_database_cannot_hold_is_refused(store: Store, elements: int) -> None:
    with pytest.raises(RefusedWrite, match="^store [^\n]*$"):
        store.save_finding(replace(FINDING, elements=elements))
    store.save_finding(FINDING)
    assert [finding.id for finding in store.findings()] == [FINDING.id]


def test_an_entry_that_the_store_refuses_is_named_and_ends_no_rebuild(
    store: Store, entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = corpus.save_entry(tmp_path / "corpus", entry)
    monkeypatch.setattr(Case, "elements", lambda case: 1 << 63)
    done = rebuild(store, tmp_path / "corpus")
    assert (done.findings, done.added) == (0, ()) and done.unreadable[0].startswith(f"{path}: store ")


def test_the_schema_is_what_the_tables_tell(store: Store) -> None:
    with store.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_the_database_of_another_program_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "notes.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE notes (text TEXT)")
    with pytest.raises(StoreError, match="notes.sqlite is the database of another program"):
        Store(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as connection:
        assert [name for (name,) in connection.execute("SELECT name FROM sqlite_master")] == ["notes"]


def test_a_store_of_a_newer_version_is_refused_in_one_line(store_url: str) -> None:
    with Store(store_url) as store, store.engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '999'"))
    with pytest.raises(StoreError) as caught:
        Store(store_url)
    assert "has the schema '999' of a newer version of fuzz" in str(caught.value) and "\n" not in str(caught.value)


def test_processes_that_open_a_new_store_together_make_it_once(store_url: str) -> None:
    program = f"from fuzz.campaign.store import Campaign, Store; print(Store({store_url!r}).read(Campaign))"
    processes = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [process.communicate(timeout=240) for process in processes] == [("[]\n", "")] * 3


def test_a_server_that_goes_away_is_one_line_and_comes_back(server: Postgres) -> None:
    with Store(server.database()) as store:
        server.stop()
        with pytest.raises(StoreError, match="^store postgresql://postgres@/store[^\n]*$"):
            store.read(Campaign)
        server.start()
        assert store.read(Campaign) == []


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("nonsense", "is no URL"),
        ("mysql://host/db", "mysql is not known; sqlite and postgresql are"),
        ("sqlite://", "a file is needed"),
        ("sqlite:////proc/nowhere/store.sqlite", "No such file"),
        ("postgresql://u:secret@/db?host=/nowhere", "No such file"),
    ],
)
def test_a_store_that_cannot_be_opened_says_why_in_one_line(url: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        Store(url)
    assert words in str(caught.value) and "\n" not in str(caught.value) and "secret" not in str(caught.value)


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "store.sqlite").write_text("not a database, but long enough to have a header" * 20)
    with pytest.raises(StoreError, match="store sqlite:///.*store.sqlite: file is not a database"):
        Store(f"sqlite:///{tmp_path / 'store.sqlite'}")


def test_a_url_names_its_driver() -> None:
    assert parse_url("postgresql://host/db").drivername == "postgresql+psycopg"


def test_a_campaign_is_locked_for_one_process_on_all_machines(store: Store, store_url: str) -> None:
    on_postgres = store.engine.dialect.name == "postgresql"
    with Store(store_url) as other:
        with store.lock_campaign(1) as first, other.lock_campaign(1) as second, other.lock_campaign(2) as third:
            assert (first, second, third) == (True, not on_postgres, True)
        with other.lock_campaign(1) as after:
            assert after


DAMAGES = [
    "UPDATE findings SET dims = '{'", "UPDATE findings SET dims = '[1]'", "UPDATE findings SET elements = 'many'",
    "UPDATE findings SET message = x'fffe'", "UPDATE findings SET message = CAST(x'ff41' AS TEXT)",
    "UPDATE findings SET first_seen = 'yesterday'", "DROP TABLE occurrences",
    "INSERT INTO alembic_version VALUES ('1')", "DELETE FROM alembic_version",
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_store_whose_rows_are_damaged_is_one_line(tmp_path: Path, damage: str) -> None:
    url = f"sqlite:///{tmp_path}/store.sqlite"
    with Store(url) as store:
        store.save_finding(FINDING, occurrence(FINDING.id, "1"))
        with store.engine.begin() as connection:
            connection.execute(sa.text(damage))
    with pytest.raises(StoreError) as caught, Store(url) as store:
        store.findings()
        store.read(Occurrence)
    assert str(caught.value).startswith(f"store {url}") and "\n" not in str(caught.value)


def test_a_store_of_which_bytes_are_wrong_or_missing_never_ends_in_a_traceback(tmp_path: Path) -> None:
    path, dice = tmp_path / "store.sqlite", random.Random(0)
    with Store(f"sqlite:///{path}") as store:
        for number in range(20):
            store.save_finding(replace(FINDING, id=str(number)), occurrence(str(number), "1"))
    whole = path.read_bytes()
    for number in range(40):
        damaged = bytearray(whole[: dice.randrange(len(whole))] if number % 4 == 0 else whole)
        for _ in range(number % 4 * 60):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        for file in tmp_path.iterdir():
            file.unlink()
        path.write_bytes(damaged)
        with suppress(StoreError), Store(f"sqlite:///{path}") as store:
            store.findings()
            store.save_finding(FINDING, occurrence(FINDING.id, "1"))
            store.read(Occurrence)


def test_findings_are_filtered_by_severity(store: Store, entry: Entry, tmp_path: Path) -> None:
    corpus.save_entry(tmp_path / "corpus", replace(entry, grade=Grade("low", "extreme")))
    rebuild(store, tmp_path / "corpus")
    assert [(one.severity, one.input_class) for one in store.findings(severity="low")] == [("low", "extreme")]
    assert store.findings(severity="high") == [] and store.count_findings(severity="low") == 1


def test_a_submission_is_judged_once_by_whoever_takes_it(store: Store) -> None:
    first = Submission("a", "first", "kernelbench", "{}", "text", "cpu", 1.0, 0, 1 << 33, created=5.0)
    second = replace(first, id="b", name="second", created=6.0)
    assert store.add_submission(second) == second and store.add_submission(first) == first
    assert store.add_submission(replace(first, name="again", created=9.0)) == first
    taken = store.take_submission("me", 7.0)
    assert taken == replace(first, state="running", owner="me", updated=7.0, tries=1)
    store.update_submission("a", "me", updated=8.0)
    store.update_submission("a", "somebody", state="queued", owner="")
    store.update_submission("a", "somebody", state="judged", judgement="{}", updated=9.0)
    still = replace(taken, updated=8.0)
    assert store.find(Submission, "a") == still and store.read(Submission, state="running") == [still]
    store.update_submission("a", "me", state="queued", owner="")
    again = store.take_submission("you", 10.0)
    assert again is not None and (again.id, again.tries, again.owner) == ("a", 2, "you")
    store.update_submission("a", "you", state="judged", judgement='{"score": 1.0}', updated=11.0)
    assert store.count_submissions() == {"judged": 1, "queued": 1}
    assert [one.id for one in store.read(Submission)] == ["b", "a"]
    assert [one.id for one in store.read(Submission, limit=1, offset=1)] == ["a"]
    assert store.take_submission("you", 12.0) == replace(second, state="running", owner="you", updated=12.0, tries=1)
    assert store.take_submission("you", 13.0) is store.find(Submission, "none") is None
