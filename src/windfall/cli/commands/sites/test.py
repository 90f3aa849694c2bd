"""`windfall site test`: try a site, and print each step as it happens.  Ctrl-C ends the job and removes its files."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windfall.cli.connect import Session
from windfall.cli.present.output import print_json, say
from windfall.errors import BadInput, WindfallError

if TYPE_CHECKING:
    from windfall.provision.trial_pilot import Step

WIDTH = 9  # of the name of a step


def execute(args: argparse.Namespace, site: Any, file: str) -> int:
    from windfall.model.units import parse_duration
    from windfall.provision.trial_pilot import Step

    patience = parse_duration(args.timeout, "--timeout") / 1000 if args.timeout else 0.0
    steps: list[Step] = []
    tell = partial(_take_step, steps, quiet=args.json)
    tell(Step("file", True, f"{file} can be read"))
    with Session() as session:
        if is_connected(site.name):
            passed, found = _try_by_provisioner(site.name, tell, patience)
        else:
            passed, found = asyncio.run(_try_here(site, session.client, tell, patience))
    if passed and found:
        _write(Path(file), found)
        tell(Step("file", True, f'reach = "{found}" is saved in {file}'))
    passed = passed and all(step.ok is not False for step in steps)
    if args.json:
        shown = [step._asdict() for step in steps if step.ok is not None]
        print_json({"site": site.name, "ok": passed, "steps": shown})
    elif passed:
        print(f"site {site.name} works")
    return 0 if passed else 1


def _take_step(steps: list[Step], step: Step, quiet: bool) -> None:
    steps.append(step)
    if not quiet:
        _say(step)


def is_connected(name: str) -> bool:
    """Has the provisioner a connection to the site?  The trial then uses it, as a new one may ask for a code again."""
    return any(line.get("connected") for line in status() if line.get("site") == name)


def status() -> list[dict[str, Any]]:
    """Return what the provisioner of this home says about each site; [] if no provisioner runs."""
    from windfall.cli.commands.sites import add
    from windfall.provision import control

    lines: list[dict[str, Any]] = []
    try:
        control.call(add.folder().parent, {"do": "ls"}, lambda line: lines.extend(line.get("sites", ())))
    except (WindfallError, OSError, ValueError):
        return []
    return lines


def _try_by_provisioner(name: str, tell: Any, patience: float) -> tuple[bool, str]:
    """Let the provisioner try the site; it ends the trial when this process hangs up."""
    from windfall.cli.commands.sites import add
    from windfall.provision import control
    from windfall.provision.trial_pilot import Step

    result: dict[str, Any] = {}

    def answer(line: dict[str, Any]) -> None:
        if "step" in line:
            tell(Step(**line["step"]))
        result.update(line)

    try:
        control.call(add.folder().parent, {"do": "test", "site": name, "timeout": patience}, answer)
    except KeyboardInterrupt:
        say("the provisioner ends the trial and removes its files")
        raise
    return bool(result.get("passed")), str(result.get("found", ""))


async def _try_here(site: Any, client: Any, tell: Any, patience: float) -> tuple[bool, str]:
    """Try the site from this process.  SIGTERM and SIGHUP end the trial as Ctrl-C does."""
    from windfall.cli.commands.sites import login
    from windfall.provision.trial import Trial
    from windfall.sites.channels.open import channel

    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        with suppress(NotImplementedError, ValueError):
            loop.add_signal_handler(number, task.cancel)
    way = channel(site, login.here if login.can_ask() else None)
    trial = Trial(site, way, client, tell)
    try:
        return await trial.run(patience), trial.found
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        await way.close()


def _write(path: Path, reach: str) -> None:
    from windfall.sites import site_file
    from windfall.sites.write import changed

    text = changed(path.read_text(encoding="utf-8"), "reach", reach)
    if site_file.parse(text, str(path)).reach != reach:
        raise BadInput(f"cannot add reach to {path}, for its layout is unusual",
                       f'write reach = "{reach}" into its [site] yourself')
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(text, encoding="utf-8")
    fresh.chmod(path.stat().st_mode & 0o777)
    fresh.replace(path)


def _say(step: Any) -> None:
    mark = {True: "ok", False: "FAILED", None: "…"}[step.ok]
    says = step.says.replace("\n", "\n" + " " * (WIDTH + 10))
    print(f"{step.name:{WIDTH}} {mark:7} {says}", flush=True)
    if step.hint:
        say(f"{'':{WIDTH}} hint:   {step.hint}")
