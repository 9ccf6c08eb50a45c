"""Triage: from the first disagreement to one finding per cause: confirm, shrink, merge.

Small questions go to a worker that keeps running; an answer that must not depend on what ran before comes from a clean
one, a new process.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fuzz import corpus
from fuzz.case import Case, sort_key
from fuzz.finding import Finding, Verdict, order
from fuzz.question import Appeal, Inquiry, Question, Report, report_of
from fuzz.rate import Rate
from fuzz.shrink import Budget, Shrinker
from fuzz.target import Target
from fuzz.trigger import needs, trigger
from fuzz.worker import Fate, Worker

TRIES = 10
"""Runs from which the rate of a disagreement is estimated."""
REMEMBERED = 8
"""Cases before the one in question that may have left the state that it depends on."""
REFERENCE = "reference"
"""The symptom of a reference that is wrong: another cause than a kernel that is."""
MUTATION = "mutation"
"""The oracle that tells of writes over inputs, which nothing else that is wrong with a case explains."""
CONSEQUENCE = "autograd"
"""The oracle that tells what a write over an input does."""
NONFINITE, FINITE = "nonfinite", ("sign", "value")
"""Symptoms of NaN and infinities, and of wrong numbers: on one output they may well have different causes."""
BITWISE = ("invariance", "layout", "scaling")
"""Oracles that compare two runs of which both may be wrong."""
ADJUDICATION = 30.0
"""Seconds that the exact value of one case may take."""
SLACK = 30.0
"""Seconds that a worker has beyond them, for the kernel and its envelope."""
PICTURED = 1 << 15
"""Elements of the largest case whose outputs are looked at as a whole."""
PATIENCE = 5.0
"""Seconds that a kernel known to hang is waited for while its case shrinks."""


@dataclass
class Record:
    """One cause: the least case that shows it, how it was first seen, and how often since.

    `filed` is the symptom that the oracle saw, where the verdict made another one of it. `needs` is what must be off
    its default for this cause to show itself; a case that lacks some of it has another cause. `finite` is the same of
    the wrong numbers that a cause of NaN makes as well, None until some turned out to be its own. `numbers` says that
    there is such a cause already, so that the case must not shrink into its NaN. `taken` are findings, each with its
    case, that turned out to be this cause when they were shrunk.
    """

    finding: Finding
    case: Case
    first: Case
    first_index: int
    first_seconds: float
    rate: Rate = Rate()
    hits: int = 1
    stateful: bool = False
    also: tuple[Finding, ...] = ()
    outputs: set[str] = field(default_factory=set)
    executions: int = 0
    path: str = ""
    known: bool = False
    accepted: bool = False
    verdict: Verdict = Verdict("unadjudicated", "accuracy alone is adjudicated")
    filed: str = ""
    needs: frozenset[str] = frozenset()
    finite: frozenset[str] | None = None
    numbers: bool = False
    diagnosis: tuple[str, ...] = ()
    witnesses: Mapping[str, str] = field(default_factory=dict)
    taken: list[tuple[Finding, Case]] = field(default_factory=list)

    @property
    def told(self) -> dict[str, str]:
        """Verdict, diagnosis and witnesses as an entry tells them."""
        said = "; ".join(f"{name} {said}" for name, said in self.witnesses.items())
        words = {"diagnosis": "; ".join(self.diagnosis), "witnesses": said}
        return {**self.verdict.told, **{key: text for key, text in words.items() if text}}

    def take(self, other: Record) -> None:
        """Moves to another record's case, with what was seen of it."""
        self.case, self.finding, self.also = other.case, other.finding, other.also
        self.verdict, self.filed = other.verdict, other.filed
        self.diagnosis, self.witnesses = other.diagnosis, other.witnesses

    @property
    def blames_reference(self) -> bool:
        """Whether the oracle itself saw that the reference is wrong, and no output of the kernel."""
        return (self.filed or self.finding.symptom) == REFERENCE

    @property
    def widened(self) -> Finding:
        """The finding with every output that ever disagreed together with one of its own."""
        return replace(self.finding, outputs=tuple(sorted(self.outputs | set(self.finding.outputs))))

    def covers(self, finding: Finding, has: frozenset[str], case: Case | None = None) -> bool:
        """Whether a finding is this cause: filed alike, or one of the others that this case triggers.

        `has` is what is off its default in the finding's case. What this case triggers beside its own finding, it does
        not explain in a case with a smaller dim, which shows that without this cause. An output that is known to be
        wrong is not asked whether it is wrong alike in another batch or layout.
        """
        if not self.needs <= has:
            return False
        if (finding.symptom == REFERENCE) != self.blames_reference:
            return False
        if case is not None and self._took(finding, case):
            return True
        if finding.oracle in BITWISE:
            wrong = [found for found in (self.widened, *self.also) if found.oracle == "accuracy"]
            if any(set(found.outputs) & set(finding.outputs) for found in wrong):
                return True
        own = self._of_memory or self.finite is not None and self.finite <= has
        also = () if finding.oracle == MUTATION or not self.fits(case) else self.also
        alike = (one for one in (self.widened, *also) if one.same_bug(finding))
        return any(own or not apart(one, finding) for one in alike)

    def _took(self, finding: Finding, case: Case) -> bool:
        """Whether one that looked the same, in a case nowhere larger, turned out to be this cause."""
        return any(looks_alike(one, finding) and nowhere_smaller(case, first) for one, first in self.taken)

    @property
    def _of_memory(self) -> bool:
        """Whether it is an access that is wrong: what it reads is NaN where that is poison, else it is some number."""
        return self.finding.oracle == "bounds"

    def fits(self, case: Case | None) -> bool:
        """Whether a case is nowhere smaller than the least one of this cause."""
        return case is None or nowhere_smaller(case, self.case)

    def leaves_open(self, finding: Finding) -> bool:
        """Whether this is a cause of NaN where the finding is a wrong number, of which it need not be the cause."""
        alike = (one for one in (self.widened, *self.also) if one.same_bug(finding))
        return not self._of_memory and any(apart(one, finding) for one in alike)


def nowhere_smaller(case: Case, least: Case) -> bool:
    """Whether no dim of a case's last call is smaller than that of another case."""
    sizes = least.last.dims
    return all(size >= sizes.get(name, size) for name, size in case.last.dims.items())


def looks_alike(known: Finding, finding: Finding) -> bool:
    """Whether both may be one bug, and show as the same."""
    return known.same_bug(finding) and known.symptom == finding.symptom


def apart(known: Finding, finding: Finding) -> bool:
    """Whether a finding is of numbers that are wrong, and a known one of what is no number."""
    return known.symptom == NONFINITE and finding.symptom in FINITE


@dataclass
class Triage:
    """Confirms, shrinks and merges the findings of one target, with one worker."""

    target: Target
    worker: Worker
    sampled: tuple[str, ...]
    spare: Worker | None = None

    def __enter__(self) -> Triage:
        return self

    def __exit__(self, *error: object) -> None:
        self.worker.stop()
        if self.spare is not None:
            self.spare.stop()

    def ask(self, case: Case, oracle: str, *, clean: bool = False, everything: bool = False) -> Report:
        """The report on a case from the running worker, or from a clean one."""
        if clean:
            self._renew()
        sampled = self.sampled if everything else tuple({oracle} & set(self.sampled))
        answer = self.worker.ask(Question(case, sampled, everything))
        return report_of(answer.outcome) if isinstance(answer, Fate) else answer

    def _renew(self) -> None:
        """Puts a new process in the worker's place, and starts the next one while this one works."""
        used, self.worker = self.worker, self.spare or self.worker
        used.stop()
        self.worker.timeout = used.timeout
        self.spare = replace(used, pending=deque())
        self.spare.start()

    def shows(self, case: Case, like: Finding, *, clean: bool = False, stateful: bool = False) -> Finding | None:
        """The finding, if the case is filed under the same oracle with an output in common, or only after a write.

        What a kernel leaves behind from an earlier call may show in any output.
        """
        filings = self.ask(case, like.oracle, clean=clean).filings
        filed = next((found for found in filings if found.oracle == like.oracle), None)
        if filed is None:
            return None
        return filed if filed.same_bug(like) or (stateful and filed.oracle == like.oracle) else None

    def filed(self, case: Case, finding: Finding) -> Finding:
        """The finding under which the case is filed when every oracle is asked, not only those of its share."""
        found = self.ask(case, finding.oracle, clean=True, everything=True).filed
        return found if found and order(found) < order(finding) else finding

    def confirm(self, case: Case, finding: Finding, history: Sequence[Case]) -> Record | None:
        """A record with its rate; with earlier calls put before it where the state they left matters; None if never."""
        rate = self._rate(case, finding)
        if killed(finding) and 2 * rate.shown <= rate.runs:
            return None
        if rate.shown:
            return Record(finding, case, case, 0, 0.0, rate=rate)
        for before in self._prefixes(history):
            longer = replace(case, calls=tuple(call for one in before for call in one.calls) + case.calls, split=None)
            found = self.shows(longer, finding, clean=True)
            if found:
                return Record(found, longer, case, 0, 0.0, stateful=True)
        return None

    def _rate(self, case: Case, finding: Finding) -> Rate:
        """How often it shows itself, first in a clean worker; in fewer runs where each takes long."""
        shown, runs, started = 0, 0, time.monotonic()
        while runs < TRIES and (runs < 2 or time.monotonic() - started < PATIENCE):
            shown += self.shows(case, finding, clean=runs == 0) is not None
            runs += 1
            if finding.symptom == "hung" and shown:
                break
        return Rate(shown, runs)

    def _prefixes(self, history: Sequence[Case]) -> list[Sequence[Case]]:
        if not history:
            return []
        return [history[:1], history[-1:], history[-REMEMBERED:]]

    def shrink(self, record: Record, budget: Budget) -> None:
        """Moves the record to the least case that still shows it, verified in a clean worker."""
        timeout = self.worker.timeout
        if record.finding.symptom == "hung":
            self.worker.timeout = min(timeout, PATIENCE)
        self._leave_earlier_calls_out(record)
        least = self._shrunk(record, budget, clean=record.stateful or len(record.case.calls) > 1)
        while record.finding.oracle == "accuracy" and not set(least.finding.outputs) <= set(record.widened.outputs):
            # Outputs that are wrong together allow cases in which only the other one is.
            record.outputs.update(least.finding.outputs)
            record.case, record.finding = least.case, least.finding
            least = self._shrunk(record, budget, clean=record.stateful or len(record.case.calls) > 1)
        if least.case.key != record.case.key and not self._certain(least, record):
            least = self._shrunk(record, budget, clean=True)
        record.case, record.finding = least.case, least.finding
        record.executions += budget.used
        record.needs = needs(record.case, self.target)
        if not record.rate.certain:
            again = self._rate(record.case, record.finding)
            record.rate = again if again.shown else record.rate
        self.worker.timeout = timeout
        self.look_around(record)
        self.adjudicate(record)
        self.diagnose(record)

    def adjudicate(self, record: Record) -> None:
        """Sets the record's verdict. Where the least case is undecided, the unshrunk one may tell, and is kept then.

        A step of shrinking may lead to where kernel and reference differ by no more than either may.
        """
        if record.finding.oracle != "accuracy":
            return
        verdict = self._appeal(record, record.case)
        if verdict.name == "undecided" and record.case.key != record.first.key:
            first = self._appeal(record, record.first)
            if first.name in ("kernel", "reference"):
                record.case, verdict = record.first, first
        record.verdict, record.filed = verdict, record.finding.symptom
        record.finding = verdict.finding or record.finding

    def _appeal(self, record: Record, case: Case) -> Verdict:
        """The verdict on one case, asked until it disagrees."""
        timeout, verdict = self.worker.timeout, Verdict("unadjudicated", "it did not disagree again")
        for _ in range(record.rate.deciding):
            if len(case.calls) > 1:
                self._renew()
            self.worker.timeout = max(timeout, ADJUDICATION + SLACK)
            answer = self.worker.ask(Appeal(case, ADJUDICATION))
            self.worker.timeout = timeout
            if not isinstance(answer, Verdict):
                return Verdict("unadjudicated", "the worker ended before it had an exact value")
            verdict = answer
            if verdict.finding is not None:
                break
        return verdict

    def diagnose(self, record: Record) -> None:
        """Says in words what is wrong: patterns are clearer in the unshrunk case, what triggers it in the least one."""
        found: tuple[str, ...] = consequences(record)
        if record.finding.oracle == "accuracy" and record.verdict.name != "reference":
            for case in (record.first, record.case):
                if not found and case.elements() <= PICTURED:
                    answer = self.worker.ask(Inquiry(case))
                    found = () if isinstance(answer, Fate | Report) else answer
        record.diagnosis = (*found, *trigger(record.case, self.target))

    def look_around(self, record: Record) -> None:
        """Asks every oracle about the record's case, for the others that fire and the finding as it is filed."""
        report = self.ask(record.case, record.finding.oracle, clean=True, everything=True)
        same = [found for found in report.findings if found.oracle == record.finding.oracle]
        record.finding = same[0] if same else record.finding
        record.also = tuple(found for found in report.findings if order(found)[0] > order(record.finding)[0])
        if record.finding.oracle == MUTATION and self.target.differentiable:
            # What a write over an input does to gradients shows badly in the least case, where most are 0.
            report = self.ask(record.first, record.finding.oracle, everything=True)
            seen = tuple(found for found in report.findings if found.oracle == CONSEQUENCE)
            record.also = (*(found for found in record.also if not seen or found.oracle != CONSEQUENCE), *seen)

    def _leave_earlier_calls_out(self, record: Record) -> None:
        """Takes the last call where it alone shows the same: then a case need not be asked of a clean worker each."""
        if record.stateful or len(record.case.calls) < 2:
            return
        alone = replace(record.case, calls=(record.case.last,))
        found = self.shows(alone, record.widened, clean=True)
        if found and found.symptom == record.finding.symptom:
            record.case, record.finding = alone, found

    def _shrunk(self, record: Record, budget: Budget, *, clean: bool) -> Shrinker:
        tries, like = record.rate.tries, record.widened

        def shows(case: Case) -> Finding | None:
            for _ in range(tries):
                found = self.shows(case, like, clean=clean, stateful=record.stateful)
                same = found is not None and (found.symptom == REFERENCE) == record.blames_reference
                if same and not (record.numbers and found is not None and found.symptom == NONFINITE):
                    return found
            return None

        shrinker = Shrinker(self.target, record.case, record.finding, shows, budget)
        shrinker.run()
        return shrinker

    def _certain(self, least: Shrinker, record: Record) -> bool:
        return any(
            self.shows(least.case, record.widened, clean=True, stateful=record.stateful)
            for _ in range(record.rate.deciding)
        )


def killed(finding: Finding) -> bool:
    """Whether a worker died of the signal that comes from outside: only where it repeats is it the case's."""
    return finding.symptom == "died" and finding.message.endswith("SIGKILL")


def consequences(record: Record) -> tuple[str, ...]:
    """What the finding does to the gradients of other operations, in words."""
    return tuple(found.message for found in (record.finding, *record.also) if found.oracle == CONSEQUENCE)


def merge(records: list[Record], new: Record, defaults: dict[str, object]) -> Record | None:
    """The record that turned out to be the same cause as the new one, moved to the lesser of both cases; or None.

    Its path stays that of its old entry, which the lesser one replaces, unless that was there before the run.
    """
    for old in records:
        numbers = old.leaves_open(new.finding) and new.needs <= old.needs
        if numbers or same_cause(old, new):
            old.finite = new.needs if numbers else old.finite
            old.needs &= new.needs
            if sort_key(new.case, defaults) < sort_key(old.case, defaults):
                old.take(new)
                old.path = "" if old.known else old.path
            old.hits += new.hits
            old.outputs |= new.outputs
            return old
    return None


def same_cause(old: Record, new: Record) -> bool:
    """Whether two records are of one cause: both ended in one case, or either one's case triggers the other."""
    alike = old.stateful and new.stateful and old.finding.oracle == new.finding.oracle
    covered = old.covers(new.finding, new.needs, new.case) or new.covers(old.finding, old.needs, old.case)
    return alike or old.case.key == new.case.key or covered


def known_records(folder: Path, target: Target, planted: str | None) -> list[Record]:
    """Records of the causes that the corpus holds for a target and do not count as fixed, none of them hit yet."""
    found = []
    place = folder / target.name
    for path in corpus.files([place]) if place.is_dir() else ():
        entry = corpus.read(path)
        if entry.finding is None or entry.status == "fixed" or entry.planted != (planted or ""):
            continue
        record = Record(entry.finding, entry.case, entry.case, 0, 0.0, hits=0, path=str(path), known=True)
        record.stateful = len(entry.case.calls) > 1
        record.needs = needs(entry.case, target)
        record.outputs = set(entry.finding.outputs)
        record.accepted = entry.status == "accepted"
        record.verdict = Verdict.recalled(entry.seen)
        record.also = tuple(_recalled(text) for text in entry.also)
        found.append(record)
    return found


def _recalled(text: str) -> Finding:
    oracle, outputs, symptom = text.split(" ")
    return Finding(oracle, tuple(outputs.split("+")), symptom, text)
