"""`windfall policy`: what may be said in expressions, and is this one?"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from ..errors import BadInput
from ..model import attributes, expressions
from .output import print_json, print_table

EXAMPLES = """examples:
  windfall policy --check 'Host.Memory >= 4000 && Host.ErrorRate < 0.1'
  windfall policy --check 'rank = !Tail ? 1 : Host.JobsToday'
  windfall policy --check bag.toml
  windfall policy --attributes"""

_SETTING = re.compile(r"\s*([A-Za-z-]+)\s*=(?![=?!])(.*)", re.DOTALL)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--check", metavar="EXPRESSION", help="is it one, and what does it come to?  KEY=EXPRESSION "
                                                             "asks for a policy, a bag file for all of its own")
    parser.add_argument("--attributes", action="store_true", help="what expressions may speak of")


def execute(args: argparse.Namespace) -> int:
    if args.attributes:
        return _attributes(args.json)
    if args.check is None:
        raise BadInput("nothing to do", "windfall policy --check 'Host.Memory >= 4000'")
    return _file(args) if _is_file(args.check) else _expression(args)


def _is_file(text: str) -> bool:
    return text.endswith(".toml") or ("\n" not in text and len(text) < 4096 and Path(text).is_file())


def _file(args: argparse.Namespace) -> int:
    from ..model import bagfile

    policy = bagfile.load(args.check).bag.policy
    found = {key: getattr(policy, key) for key in ("requirements", "rank", "sites") if getattr(policy, key, "")}
    if args.json:
        print_json({key: _view(expressions.check(text, key)) for key, text in found.items()})
        return 0
    print(f"{args.check}: all is well")
    for key, text in found.items():
        print(f"  {key} = {text}")
    return 0


def _expression(args: argparse.Namespace) -> int:
    setting = _SETTING.match(args.check)
    key = expressions.named(setting[1]) if setting else ""
    found = expressions.check(setting[2], key) if setting else expressions.parse(args.check)
    view = _view(found)
    if args.json:
        print_json(view)
        return 0
    kind = expressions.NAMES[found.type]
    print(f"it comes to {kind}, and speaks of {', '.join(found.uses) or 'nothing'}")
    if not setting:
        print(f"it can be: {', '.join(view['policies']) or 'no policy'}")
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
        print_table(["attribute", "type", "", "known by"], [row[:4] for row in rows])
    return 0
