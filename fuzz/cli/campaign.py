"""Implements ``fuzz campaign``: many targets, many workers, days."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fuzz import corpus
from fuzz.cli.console import errors, put_json
from fuzz.cli.service import require_service_packages
from fuzz.cli.shared_options import FailOn, Json, Junit, OnlyNew, Sarif
from fuzz.errors import UsageError
from fuzz.model.grade import check_severity, is_at_least
from fuzz.report.ci_files import CiFiles
from fuzz.report.items import ReportItem, make_item
from fuzz.run.replay import load_target_of
from fuzz.target_code import prepare

if TYPE_CHECKING:
    from fuzz.campaign.state import CampaignState
    from fuzz.campaign.store import FindingRecord


def campaign(
    config: Annotated[Path, typer.Argument(help="A YAML file; docs/campaigns.md describes its keys.")],
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the last campaign of this name.")] = False,
    only_new: OnlyNew = False,
    fail_on: FailOn = "medium",
    junit: Junit = None,
    sarif: Sarif = None,
    json: Json = False,
) -> int:
    """Fuzz many targets with many workers until a budget ends; the same command with --resume goes on."""
    require_service_packages()
    ci_files = CiFiles(junit, sarif)
    check_severity(fail_on)
    from fuzz.campaign.config import load_config
    from fuzz.campaign.result_table import campaign_json, make_table
    from fuzz.campaign.runner import run_campaign
    from fuzz.campaign.state import why_nothing_ran
    from fuzz.campaign.store.rebuild import entry_status

    if ci_files:
        # To write these files loads targets; a fork then would leave the threads of notification commands behind.
        prepare()
    # What stops services ends a campaign as Ctrl-C does.
    handler = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        state, outcome = run_campaign(load_config(config), resume=resume, say=errors.print)
    finally:
        signal.signal(signal.SIGTERM, handler)
    with state.store:
        names = (*state.regressed, *state.known, *state.new)
        findings = {name: state.store.find_finding(name) for name in names}
        if json:
            put_json(campaign_json(state, outcome))
        else:
            errors.print(make_table(state))
            errors.print(
                f"{outcome}; findings {len(state.new)} new, {len(state.known)} known, {len(state.fixed)} fixed"
            )
        if ci_files:
            seconds = sum(job.seconds for job in state.jobs)
            ci_files.write("fuzz campaign", list(report_items(state, findings, only_new, fail_on)), seconds)
        accepted = {name for name, saved in findings.items() if saved and entry_status(saved) == "accepted"}
        found = {*state.new, *(() if only_new else {*state.known, *state.regressed})} - accepted
        if any(counts(findings[name], fail_on) for name in found):
            return 1
        why = why_nothing_ran(state.cases, sum(job.rejected for job in state.jobs))
        if outcome == "finished" and why:
            raise UsageError(why)
        return 0


def counts(finding: FindingRecord | None, fail_on: str) -> bool:
    """Whether a finding of a campaign is of that severity or above: of a planted bug, any; so is an unknown one."""
    return finding is None or is_at_least(finding.severity or None, "low" if finding.planted else fail_on)


def report_items(
    state: CampaignState, findings: Mapping[str, FindingRecord | None], only_new: bool, fail_on: str
) -> Iterator[ReportItem]:
    """The findings of a campaign, for continuous integration; those fail that the exit code counts.

    One whose entry is gone or cannot be read is left out, which is said.
    """
    from fuzz.campaign.state import target_name

    targets = {target_name(job): job.target for job in state.jobs}
    for name, saved in findings.items():
        if saved is None:
            continue
        path, kind = Path(saved.corpus) / saved.path, "new" if name in state.new else "known"
        try:
            entry = corpus.read(path)
            target = load_target_of(entry, path, targets.get(saved.target, ""))[1]
        except UsageError as error:
            errors.print(f"left out: {error}")
            continue
        passes = kind == "known" and only_new or not counts(saved, fail_on)
        result = "accepted" if entry.status == "accepted" else "ok" if passes else "failed"
        yield make_item(entry, target, str(path), result, kind, saved.message)
