"""`windfall policy`: show and change a bag's policies; check expressions; list hosts as expressions see them."""

from __future__ import annotations

import argparse
import os
import re
from typing import TYPE_CHECKING

from windfall.cli.present.output import print_json, print_table, say, shown
from windfall.cli.present.policy_hints import warn
from windfall.client.waiting import FINAL
from windfall.errors import BadInput
from windfall.model import units
from windfall.model.checks import bag as check
from windfall.model.policies import attributes, expressions, language, replica_caps

if TYPE_CHECKING:
    from windfall.client.client import Client
    from windfall.client.types import BagInfo, HostInfo, PolicyInfo
    from windfall.model.spec import Policy

EXAMPLES = """examples:
  windfall policy 7 rank='!Tail ? 1 : Host.JobsToday' requirements=
  windfall policy --check 'Host.Memory >= 4000 && Host.ErrorRate < 0.1'
  windfall policy --check bag.toml
  windfall policy --attributes
  windfall policy --hosts              the hosts that serve you, as expressions see them
  windfall policy 7 --hosts            which of them bag 7 may use, and its rank there"""

_QUOTED = re.compile(r"\"([^\"]+)\"|'([^']+)'", re.DOTALL)
_SETTING = re.compile(r"\s*([A-Za-z_-]+)\s*=(?!=|\?=|!=)(.*)", re.DOTALL)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bag", metavar="BAG", nargs="?", help="number of the bag, or its name")
    parser.add_argument("settings", metavar="KEY=VALUE", nargs="*",
                        help=f"{', '.join((*check.EXPRESSIONS, *replica_caps.CAPS))}, budget; KEY= removes a policy")
    parser.add_argument("--check", metavar="EXPRESSION", help="check an expression; KEY=EXPRESSION: check a policy; "
                                                             "a bag file: check its policies")
    parser.add_argument("--attributes", action="store_true", help="list the attributes that expressions may use")
    parser.add_argument("--hosts", action="store_true", help="list the hosts that serve you, with their "
                                                             "attributes (all of them with --json); with a bag: say "
                                                             "whether its policies admit each host")


WORDS_ANYWHERE = True  # policy 7 --json rank=1


def execute(args: argparse.Namespace) -> int:
    if args.bag is not None and (args.attributes or args.check is not None):
        option = "--attributes" if args.attributes else "--check"
        raise BadInput(f"{option} only shows values; remove '{args.bag[:60]}'", "" if args.attributes else
                       "or put all of the expression in quotes: windfall policy --check 'rank = Host.Cores + 1'")
    if args.attributes:
        return _attributes(args.json)
    if args.hosts:
        return _hosts(args)
    if args.check is not None:
        return _file(args) if _is_file(args.check) else _expression(args)
    if args.bag is None:
        raise BadInput("no bag is given", "windfall policy BAG, or windfall policy --check 'Host.Memory >= 4000'")
    return _bag(args)


# --- of a bag ---------------------------------------------------------------------------------------------------


def _bag(args: argparse.Namespace) -> int:
    policy, budget = _settings(args.settings)
    from windfall.cli.connect import Session, find_bag

    with Session() as session:
        bag = find_bag(session.client, args.bag)
        if budget is not None:
            session.client.set_budget(bag, budget)
        view = session.client.set_policy(bag, policy) if policy else session.client.policy(bag)
        about = session.client.bag(bag)
        _tell(args, session.client, view, about)
    return 0


def _tell(args: argparse.Namespace, client: Client, view: PolicyInfo, about: BagInfo) -> None:
    shown_budget = about["budget"]
    if args.json:
        print_json({**view, "budget": shown_budget})
        return
    for key, text in view["policy"].items():
        print(f"{key} = {shown(text, 5_000)}")
    if shown_budget:
        print(f"budget = {units.format_core_time(shown_budget)}")
    if args.settings and about["state"] in FINAL:
        say(f"bag {view['bag']} has ended: the change applies only to tasks that are retried or added")
    else:
        warn(client, view)


def _settings(texts: list[str]) -> tuple[dict[str, str], int | None]:
    """Return the expressions and the budget, in ms of cores.  Mistakes are refused here, before a server is asked."""
    policy: dict[str, str] = {}
    budget = None
    given: list[str] = []
    for text in texts:
        setting = _SETTING.fullmatch(text)
        if not setting:
            raise BadInput(f"'{text[:60]}' is not KEY=VALUE", "as in rank='Host.Cores'")
        key = expressions.named(setting[1], "budget")
        if key in given:
            raise BadInput(f"{key} is given twice", "leave one of them out")
        given.append(key)
        if key == "budget":
            budget = units.parse_core_time(setting[2].strip(), "budget") if setting[2].strip() else 0
            continue
        policy[key] = check.setting(_bare(setting[2]), key) if setting[2].strip() else ""
    return policy, budget


def _bare(text: str) -> str:
    """Remove TOML's quotes around a value: no policy is a mere text, so the quotes are no part of an expression."""
    found = _QUOTED.fullmatch(text.strip())
    return found[1] or found[2] if found else text.strip()


def warn_of(client: Client, bag: int, policy: Policy) -> None:
    """Warn the user if the policies of a bag that has just been submitted match no host."""
    if check.given(policy):
        warn(client, client.policy(bag))


# --- of hosts -----------------------------------------------------------------------------------------------------


def _hosts(args: argparse.Namespace) -> int:
    if args.settings:
        raise BadInput("--hosts only shows hosts", f"first windfall policy {args.bag} {args.settings[0]}, then --hosts")
    from windfall.cli.connect import Session, find_bag

    with Session() as session:
        bag = find_bag(session.client, args.bag) if args.bag is not None else None
        found = list(session.client.hosts(bag))
    if args.json:
        print_json(found)
    elif not found:
        say("no host serves you now; 'windfall serve --pilot' starts a pilot on this one, "
            "'windfall site ls' lists your sites")
    elif bag is None:
        print_table(["host", "site", "cores", "memory", "load", "attempts", "error rate", "speed", "jobs today"],
                    map(_host_row, found), right=range(2, 9))
    else:
        for each in found:
            print(_verdict(each))
    return 0


def _host_row(found: HostInfo) -> list[object]:
    host = found["ad"]["Host"]
    rate = host["ErrorRate"]
    return [host["Name"], host["Site"], host["Cores"], f"{host['Memory']} MB", f"{host['Load']:.2f}", host["Attempts"],
            "" if rate is None else f"{rate:.3f}", f"{host['Speed']:.2f}", host["JobsToday"]]


def _verdict(found: HostInfo) -> str:
    host, rank, most = found["ad"]["Host"], found["rank"], found["per_host"]
    where, why = f"{shown(host['Name'])} ({shown(host['Site'])})", shown(found["why"], 1000)
    if not found["match"]:
        return f"{where}: no; {why}"
    parts = ["yes"]
    parts += [f"rank {rank:g}"] if rank is not None else []
    parts += [f"{most} at most"] if most is not None else []
    return f"{where}: {', '.join(parts)}" + (f"; {why}" if why else "")


# --- of no bag --------------------------------------------------------------------------------------------------


def _is_file(text: str) -> bool:
    return text.endswith(".toml") or os.path.isfile(text)  # a long expression is not the name of a file


def _file(args: argparse.Namespace) -> int:
    from windfall.model.bagfile import reader

    policy = reader.load(args.check).bag.policy
    if args.json:
        print_json({key: _shown(key, text) for key, text in check.asked_for(policy).items()})
        return 0
    print(f"{args.check}: its policies are valid")
    for key, text in check.asked_for(policy).items():
        print(f"  {key} = {text}")
    return 0


def _shown(key: str, text: str) -> dict[str, list[str] | str]:
    if key in replica_caps.CAPS:
        return {"cap": text}
    return {"preset": text} if text in check.REPLICATE else _view(expressions.check(text, key))


def _expression(args: argparse.Namespace) -> int:
    setting = _SETTING.match(args.check)
    if setting is None and args.check.strip().lower() in check.REPLICATE:
        setting = _SETTING.match(f"replicate = {args.check}")
    if setting is None:
        return _tell_expression(expressions.parse(args.check), args.json, named=False)
    if setting[1] == "budget":
        budget = units.parse_core_time(setting[2].strip(), "budget")
        return _answer({"budget": budget}, f"it is a budget: {units.format_core_time(budget)}", args.json)
    key = expressions.named(setting[1], "budget")
    text = check.setting(_bare(setting[2]), key)
    if key in replica_caps.CAPS:
        return _answer({"cap": text}, f"it is a cap: {replica_caps.CAPS[key]}", args.json)
    if key == "replicate" and text in check.REPLICATE:
        return _answer({"preset": text}, "it is a preset of replicate", args.json)
    return _tell_expression(expressions.check(text, key), args.json, named=True)


def _tell_expression(found: expressions.Expression, as_json: bool, named: bool) -> int:
    view = _view(found)
    text = f"it yields {language.NAMES[found.type]}, and uses {', '.join(found.uses) or 'nothing'}"
    if not named:
        text += f"\nit can stand for: {', '.join(view['policies']) or 'no policy'}"
    return _answer(view, text, as_json)


def _answer(value: object, text: str, as_json: bool) -> int:
    if as_json:
        print_json(value)
    else:
        print(text)
    return 0


def _view(found: expressions.Expression) -> dict[str, list[str] | str]:
    return {"expression": found.text, "type": found.type, "attributes": list(found.uses),
            "policies": expressions.serves(found)}


def _attributes(as_json: bool) -> int:
    rows = [(f"{scope}.{each.name}", each.type, each.says, each.by, list(each.aliases))
            for scope, table in attributes.ADS.items() for each in table]
    rows += [(each.name, each.type, each.says, each.by, list(each.aliases)) for each in attributes.LONE]
    if as_json:
        names = ("name", "type", "says", "by", "aliases")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        wide = max(len(row[0]) for row in rows)
        for name, kind, says, by, _ in rows:
            print(f"{name:{wide}}  {kind:6}  {by:9}  {says}")
        print(f"Task.Replica1.… to Task.Replica{attributes.MOST_REPLICAS}.…: SentTime, and Host with its attributes")
    return 0
