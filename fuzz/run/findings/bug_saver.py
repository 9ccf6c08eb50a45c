"""Saves bugs as entries of a corpus: one for each cause, whoever else saves entries meanwhile."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from fuzz import corpus
from fuzz.errors import CorpusError, one_line
from fuzz.model.entry import Entry
from fuzz.run.findings.deduplicate import Attribution
from fuzz.run.findings.known_bugs import read_known_bugs
from fuzz.run.options import RunOptions
from fuzz.run.shrink_entry import updated_entry
from fuzz.run.watcher import Watcher
from fuzz.target.spec import Target
from fuzz.triage.bug import SHRINKING, Bug
from fuzz.worker.deadline import OutOfTime


@dataclass
class BugSaver:
    """Keeps the bugs of a run as entries in the folder of its target, each with where it was seen.

    With `keep_smaller_duplicate`, a smaller case of a cause that the corpus holds already is saved as another entry;
    not of one that somebody has accepted, which an open entry would report again: that one stays as they saw it.
    While a bug is saved, `file_lock` keeps others out of the target's folder. `written` are the paths of the entries
    that this run has saved as new ones.
    """

    options: RunOptions
    target: Target
    folder: Path
    backend: str
    versions: dict[str, str]
    attribution: Attribution
    watcher: Watcher
    keep_smaller_duplicate: bool = True
    file_lock: Callable[[Path], AbstractContextManager[None]] = corpus.lock
    written: set[str] = field(default_factory=set)

    @property
    def bugs(self) -> list[Bug]:
        """The bugs that are known, those of the run among them."""
        return self.attribution.bugs

    def find_same_cause(self, bug: Bug, among: list[Bug]) -> Bug | None:
        """The bug among some that has the cause of another. Where time ends before that is known, both are kept, unless
        one case showed both, as it does where two runs have one seed.
        """
        try:
            return self.attribution.find_same_cause(bug, among)
        except OutOfTime:
            return next((other for other in among if other.known and bug.has_first_case_of(other)), None)

    def replaces(self, bug: Bug, same: Bug) -> bool:
        """Whether the entry of a bug with the same cause is to be replaced, or joined by another one."""
        keeps_both = self.keep_smaller_duplicate and not same.accepted
        return self.attribution.is_better(bug, same) and (keeps_both or not same.known)

    @contextmanager
    def locked(self, bug: Bug) -> Iterator[None]:
        """Keeps others out of the target's folder while a bug is saved.

        Where that fails, the bug is kept elsewhere, and what this run has saved and is gone, as the error says.
        """
        try:
            with self.file_lock(self.folder / self.target.name):
                yield
        except CorpusError as error:
            lost = [self._entry_of(bug), *(self._entry_of(other) for other in self.removed if other is not bug)]
            raise CorpusError(f"{error}; {save_elsewhere(lost)}") from None

    @property
    def removed(self) -> list[Bug]:
        """The bugs whose entries this run has saved, and somebody has removed or replaced since."""
        return [bug for bug in self.bugs if bug.path in self.written and not os.path.exists(bug.path)]

    def add(self, bug: Bug, same: Bug | None) -> Bug | None:
        """Adds a bug, or merges it with the one of the same cause; the bug whose entry is to be saved, if any."""
        meanwhile = read_known_bugs(self.folder, self.target, self.options.planted, {known.path for known in self.bugs})
        self.bugs.extend(meanwhile)
        duplicate = self.find_same_cause(bug, meanwhile)
        if duplicate is not None:
            self.attribution.merge(duplicate, bug, replaces=False)
            return None
        if same is None:
            self.mention_others(bug)
            self.bugs.append(bug)
            return bug
        needed, replaces = same.triggers, self.replaces(bug, same)
        self.attribution.merge(same, bug, replaces)
        if same.triggers != needed:
            replaces |= self._absorb_others(same)
        return same if replaces else None

    def _absorb_others(self, bug: Bug) -> bool:
        """Merges bugs of this run that were added as other causes before what one needs was known.

        Returns whether the entry of the bug is to be saved again.
        """
        others = [other for other in self.bugs if other is not bug and not other.known]
        absorbed = [other for other in others if self.find_same_cause(other, [bug])]
        for other in absorbed:
            self.attribution.merge(bug, other, self.replaces(other, bug))
            self.bugs.remove(other)
            Path(other.path).unlink(missing_ok=True)
            self.watcher.on_saved(bug, other.path)
        return bool(absorbed) and not (bug.known and bug.path)

    def mention_others(self, bug: Bug) -> None:
        """Says of which known bugs it is not clear that they are others."""
        unclear = [other for other in self.bugs if other is not bug and bug.may_share_cause(other)]
        said = tuple(f"possibly the same cause as {Path(other.path).name}" for other in unclear)
        bug.least = replace(bug.least, diagnosis=tuple(dict.fromkeys((*bug.least.diagnosis, *said))))

    def save(self, bug: Bug) -> None:
        """Writes the bug's entry, in the place of the one of a larger case."""
        previous = bug.path
        entry = self._entry_of(bug)
        self._announce(bug, entry, previous)
        bug.path = str(corpus.save_entry(self.folder, entry, Path(previous) if previous else None))
        self.written.add(bug.path)
        self.watcher.on_saved(bug, previous if previous != bug.path else "")

    def _announce(self, bug: Bug, entry: Entry, *replaced: str) -> None:
        """Says which name a bug's entry is about to take, and those that it takes the place of."""
        place = corpus.find_place(self.folder / self.target.name, entry)
        if not place.exists():
            for path in replaced:
                self.watcher.on_saving(bug, place.name, path)

    def _replace(self, bug: Bug, shown: Bug, *also: Path) -> None:
        """Has a bug's entry show another one, and says so; its new name takes the place of others as well."""
        path = Path(bug.path)
        entry = updated_entry(corpus.read(path), shown)
        self._announce(bug, entry, bug.path, *map(str, also))
        bug.path = str(corpus.save_in_folder(path.parent, entry, path))

    def _entry_of(self, bug: Bug) -> Entry:
        return bug.to_entry(
            planted=self.options.planted or "", backend=self.backend, versions=self.versions,
            seed=self.options.seed, first_case=bug.origin.index,
        )  # fmt: skip

    def save_again(self, bug: Bug) -> None:
        """Replaces a bug's entry once more is known of it, unless somebody else replaced or removed it meanwhile."""
        before = Path(bug.path)
        with self.locked(bug):
            if not before.exists():
                return
            if bug.path in self.written:
                self.save(bug)
                return
            if not corpus.read(before).provenance.cut_off:
                return
            self._replace(bug, bug)
        self.watcher.on_saved(bug, str(before) if bug.path != str(before) else "")

    def merge_saved(self, bug: Bug, same: Bug) -> bool:
        """Merges a bug that this run has saved into another one with its cause; whether that one takes its example."""
        replaces = self.replaces(bug, same)
        self.attribution.merge(same, bug, replaces)
        self.bugs[:] = [other for other in self.bugs if other is not bug]
        return replaces

    def remove_merged(self, bug: Bug, same: Bug) -> None:
        """Removes the entry of a bug that was merged into another one."""
        if bug.path != same.path:
            Path(bug.path).unlink(missing_ok=True)
            self.watcher.on_saved(same, bug.path)

    def find_finished(self, again: Bug, resumed: Bug) -> Bug | None:
        """The finished bug with the cause of one that is shrunk now: two runs at once may each have saved it."""
        if again.cut_off or resumed.cut_off != SHRINKING:
            return None
        finished = [bug for bug in self.bugs if bug is not resumed and not bug.cut_off]
        return self.attribution.find_same_cause(again, finished)

    def join(self, bug: Bug, again: Bug, same: Bug) -> None:
        """Removes the entry of a known bug that has, now that it is shrunk, the cause of another one.

        The better of the two cases is kept, with the other one's status.
        """
        before, kept = Path(bug.path), Path(same.path)
        with self.locked(again):
            if not before.exists() or not kept.exists():
                return
            if self.attribution.is_better(again, same):
                self._replace(same, again, before)
                same.least, same.triggers = again.least, None
            if Path(same.path) != before:
                before.unlink()
        self.bugs.remove(bug)
        for removed in sorted({before, kept} - {Path(same.path)}):
            self.watcher.on_saved(same, str(removed))


def save_elsewhere(entries: Sequence[Entry]) -> str:
    """Saves entries in a new temporary folder, and says where; their corpus cannot take them any more."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="fuzz-findings-"))
        paths = {corpus.save_entry(folder, entry) for entry in entries}
        return f"the finding is kept in {paths.pop()}" if len(paths) == 1 else f"the findings are kept in {folder}"
    except (CorpusError, OSError) as error:
        return f"nor can the finding be kept elsewhere: {one_line(error)}"
