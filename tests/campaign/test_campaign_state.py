"""What a campaign knows of findings whose entries are replaced, merged and found again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fuzz import corpus
from fuzz.campaign.journal import note_saved
from fuzz.campaign.protocol import EntrySaved, Hit, Replayed
from fuzz.campaign.recorder import Recorder
from fuzz.campaign.result_table import campaign_json
from fuzz.campaign.state import CampaignState, RunningSlice
from fuzz.campaign.store import FindingRecord, Job, Store
from fuzz.campaign.store.rebuild import rebuild
from fuzz.clock import Clock
from fuzz.model.entry import Entry


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path / 'store.sqlite'}") as opened:
        yield opened


@pytest.fixture
def save(entry: Entry, tmp_path: Path) -> Callable[[str], Path]:
    """Saves the same entry under a name."""

    def save(name: str) -> Path:
        path = corpus.save_entry(tmp_path / "corpus", entry)
        return path.rename(path.with_name(f"{name}.yaml"))

    return save


def start(folder: Path, store: Store) -> tuple[CampaignState, RunningSlice]:
    """A campaign with one job, whose first slice runs."""
    campaign = store.create_campaign("nightly", "{}", str(folder / "corpus"), 0.0, "host", 1)
    campaign = replace(campaign, folder=str(folder / "state"))
    clock, jobs = Clock(), [Job(campaign.id, "gelu_bw", "erf_saturates", "cpu", "auto", 0)]
    state = CampaignState(store, Recorder(store, clock, print), clock, campaign, jobs, print)
    state.start()
    return state, RunningSlice(0, jobs[0])


def names(state: CampaignState) -> tuple[list[str], list[str]]:
    """(the new findings, the known ones), as they are after a resumption as well."""
    again = replace(state, new={}, known={})
    again.load()
    assert (again.new, again.known) == (state.new, state.known)
    return list(state.new), list(state.known)


def test_a_known_finding_that_gets_a_smaller_case_has_its_new_name_only(
    store: Store, save: Callable[[str], Path], tmp_path: Path
) -> None:
    path = save("a")
    state, running = start(tmp_path, store)
    state.add_hit(running, Hit(str(path), True, 1, 5))
    state.regressed["a"] = state.known["a"]
    smaller = path.rename(path.with_name("b.yaml"))
    assert state.add_saved(running, EntrySaved(str(smaller), True, 2, 7, str(path), "cpu", {})) == ""
    # Another host has read the folder before that.
    state.add_hit(running, Hit(str(path), True, 3, 9))
    assert names(state) == ([], ["b"]) and list(state.regressed) == ["b"]
    (found,) = campaign_json(state, "finished")["findings"]
    assert (found["id"], found["seen"]) == ("b", "known")


def test_a_new_finding_that_is_merged_into_a_known_one_leaves_none_that_is_new(
    store: Store, save: Callable[[str], Path], tmp_path: Path
) -> None:
    known = save("a")
    state, running = start(tmp_path, store)
    path = save("b")
    assert state.add_saved(running, EntrySaved(str(path), False, 1, 3, "", "cpu", {})) == "b"
    path.unlink()
    assert state.add_saved(RunningSlice(0, replace(running.before, slices=1)), EntrySaved(
        str(known), True, 2, 3, str(path), "cpu", {}
    )) == ""  # fmt: skip
    assert names(state) == ([], ["a"])


def test_a_new_finding_of_an_earlier_slice_that_gets_a_smaller_case_is_still_new(
    store: Store, save: Callable[[str], Path], tmp_path: Path
) -> None:
    state, running = start(tmp_path, store)
    path = save("a")
    state.add_saved(running, EntrySaved(str(path), False, 1, 3, "", "cpu", {}))
    smaller = path.rename(path.with_name("b.yaml"))
    state.add_saved(running, EntrySaved(str(smaller), True, 2, 7, str(path), "cpu", {}))
    state.add_hit(running, Hit(str(smaller), True, 2, 7))
    assert names(state) == (["b"], [])


def test_what_takes_the_place_of_an_earlier_finding_is_not_said_to_be_new(
    store: Store, save: Callable[[str], Path], tmp_path: Path
) -> None:
    """The earlier one, now that it is shrunk, has the cause of the new one, whose entry gets the smaller case."""
    earlier = save("a")
    state, running = start(tmp_path, store)
    path = save("b")
    assert state.add_saved(running, EntrySaved(str(path), False, 1, 5, "", "cpu", {})) == "b"
    before = state.last_new
    smaller = path.rename(path.with_name("c.yaml"))
    earlier.unlink()
    for replaced in (earlier, path):
        assert state.add_saved(running, EntrySaved(str(smaller), False, 1, 5, str(replaced), "cpu", {})) == ""
    assert names(state) == ([], ["c"]) and state.last_new == before


def test_only_what_this_campaign_has_saved_is_taken_for_its_own(
    store: Store, save: Callable[[str], Path], tmp_path: Path
) -> None:
    state, _ = start(tmp_path, store)
    save("own")
    save("of-others")
    note_saved(state.saved(0), "own.yaml")
    note_saved(state.saved(0), "gone.yaml")
    state.adopt(rebuild(store, state.corpus).added)
    assert names(state) == (["own"], [])


@pytest.mark.parametrize(
    ("noted", "expected"),
    [
        ([("new", ""), ("c", "new")], (["c"], [])),
        # New, and never told to the store before it got a smaller case, twice.
        ([("a", ""), ("b", "a"), ("c", "b")], (["new", "c"], [])),
        ([("c", "known")], (["new"], ["c"])),
        ([("c", "new"), ("c", "of-others")], ([], ["c"])),
        # An entry that two names took turns with.
        ([("c", "of-others"), ("of-others", "c"), ("c", "of-others")], (["new"], [])),
    ],
)
def test_what_took_the_place_of_a_finding_before_the_store_knew_is_new_or_known_as_that_was(
    noted: list[tuple[str, str]], expected: tuple[list[str], list[str]],
    store: Store, save: Callable[[str], Path], tmp_path: Path,
) -> None:  # fmt: skip
    state, running = start(tmp_path, store)
    new = save("new")
    state.add_saved(running, EntrySaved(str(new), False, 1, 5, "", "cpu", {}))
    known = save("known")
    if ("c", "known") in noted:
        state.add_hit(running, Hit(str(known), True, 1, 5))
    for name, replaced in noted:
        note_saved(state.saved(0), f"{name}.yaml", replaced and f"{replaced}.yaml")
    replaced_names = {replaced for _, replaced in noted}
    for path in (new, known):
        if path.stem in replaced_names:
            path.unlink()
    save("c")
    again = replace(state, new={}, known={})
    again.load()
    again.adopt(rebuild(store, again.corpus).added)
    assert names(again) == expected


@pytest.mark.parametrize("resumed", ["finished", "running"])
def test_what_replays_have_shown_is_known_when_a_finished_campaign_is_asked_again(
    resumed: str, store: Store, save: Callable[[str], Path], tmp_path: Path
) -> None:
    corpus.mark(save("again"), "fixed", "repaired")
    save("gone")
    save("still-open")
    state, _ = start(tmp_path, store)
    rebuild(store, state.corpus)
    for name, disagrees, status in (("again", True, "fixed"), ("gone", False, "open"), ("still-open", True, "open")):
        state.add_replay(0, Replayed(str(state.corpus / "gelu_bw" / f"{name}.yaml"), disagrees, status))
    assert (list(state.regressed), list(state.fixed)) == (["again"], ["gone"])
    campaign = replace(state.campaign, state=resumed)
    later = replace(state, campaign=campaign, regressed={}, fixed={})
    # What somebody marks, or another campaign replays, after that is nothing that this one has shown.
    others, _ = start(tmp_path, store)
    for name, disagrees, status in (("still-open", True, "fixed"), ("again", False, "fixed")):
        others.add_replay(0, Replayed(str(state.corpus / "gelu_bw" / f"{name}.yaml"), disagrees, status))
    corpus.mark(state.corpus / "gelu_bw" / "still-open.yaml", "fixed", "repaired")
    rebuild(store, state.corpus)
    later.load()
    expected = (state.regressed, state.fixed) if resumed == "finished" else ({}, {})
    assert (later.regressed, later.fixed) == expected
    shown = campaign_json(later, "finished")
    assert shown["again"] == [finding["id"] for finding in shown["findings"]] == list(later.regressed)


def test_a_finding_to_which_another_campaign_gave_a_smaller_case_is_no_unknown_one(
    store: Store, save: Callable[[str], Path], tmp_path: Path
) -> None:
    path = save("a")
    state, running = start(tmp_path, store)
    state.add_hit(running, Hit(str(path), True, 1, 5))
    other, slice_of_other = start(tmp_path, store)
    smaller = path.rename(path.with_name("b.yaml"))
    other.add_saved(slice_of_other, EntrySaved(str(smaller), True, 2, 7, str(path), "cpu", {}))
    assert store.find_finding("a") == store.find(FindingRecord, "b") is not None
    assert store.find_finding("c") is None


def test_a_finding_with_two_names_is_shown_once(store: Store, save: Callable[[str], Path], tmp_path: Path) -> None:
    """Another campaign has given a smaller case to one that is new here, and merged one that is known here into it."""
    new, known, merged = (save(name) for name in "abc")
    state, running = start(tmp_path, store)
    state.add_saved(running, EntrySaved(str(new), False, 1, 5, "", "cpu", {}))
    state.add_hit(running, Hit(str(known), True, 1, 5))
    other, slice_of_other = start(tmp_path, store)
    for path in (new, known):
        other.add_saved(slice_of_other, EntrySaved(str(merged), True, 1, 5, str(path), "cpu", {}))
    shown = campaign_json(state, "finished")
    assert [(finding["id"], finding["seen"]) for finding in shown["findings"]] == [("c", "new")]
