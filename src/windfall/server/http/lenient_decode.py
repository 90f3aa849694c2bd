"""Lenient decoding of pilots' messages whose fields exceed the bounds of the records.

A pilot resends a refused report for ever, and every other report with it.  So this module cuts texts that only people
read, and clamps numbers that are only summed.  The server then refuses only messages of the wrong form.
"""

from __future__ import annotations

import json
from typing import Any

from windfall.errors import BadInput
from windfall.server.http import schema

_COUNTS = dict.fromkeys(("t0", "t1", "wall", "cpu", "rss", "out_size", "err_size"), (0, schema.MAX_COUNT))
_CODES = dict.fromkeys(("exit", "signal"), (-schema.MAX_CODE, schema.MAX_CODE))
_REPORT_NUMBERS = {**_COUNTS, **_CODES}
_REPORT_TEXTS = {"why": schema.MAX_WORD, "note": schema.MAX_LINE, "out": schema.MAX_TEXT, "err": schema.MAX_TEXT,
                 "out64": schema.MAX_TEXT, "err64": schema.MAX_TEXT}  # base64 is cut at a multiple of four
_EXCHANGE_NUMBERS = dict.fromkeys(("want", "wait", "left"), (0, schema.MAX_COUNT))
_HOST_TEXTS = {"platform": schema.MAX_LINE, "python": schema.MAX_LINE,
               **dict.fromkeys(("name", "boot", "life", "hardware"), schema.MAX_NAME)}
_SHAPE_NUMBERS = {"cores": (1, 1 << 20), "memory": (0, schema.MAX_COUNT), "gpus": (0, 4096),
                  "disk": (0, schema.MAX_COUNT), "left": (0, schema.MAX_COUNT)}


def parse(body: bytes | bytearray) -> Any:
    """Parse JSON with Python's parser, which accepts lone surrogates, and replace these by question marks."""
    try:
        return _whole(json.loads(body))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"the body is not JSON: {error}") from error


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_whole(each) for each in value]
    if isinstance(value, dict):
        return {_whole(name): _whole(each) for name, each in value.items()}
    return value


def exchange(message: Any) -> Any:
    if not isinstance(message, dict):
        return message
    _bring_in(message, _EXCHANGE_NUMBERS)
    _cut(message, {"bye": schema.MAX_WORD, "trouble": schema.MAX_LINE})
    reports = message.get("reports")
    for report in reports if isinstance(reports, list) else ():
        if isinstance(report, dict):
            _bring_in(report, _REPORT_NUMBERS)
            _cut(report, _REPORT_TEXTS)
            _tidy_files(report.get("files"))
            _tidy_files(report.get("saved"))
            _tidy_values(report)
            _tidy_left(report.get("left"))
    return message


def enrol(message: Any) -> Any:
    if isinstance(message, dict):
        if isinstance(message.get("host"), dict):
            _bring_in(message["host"], {name: _SHAPE_NUMBERS[name] for name in ("cores", "memory")})
            _cut(message["host"], _HOST_TEXTS)
        if isinstance(message.get("shape"), dict):
            _bring_in(message["shape"], _SHAPE_NUMBERS)
    return message


def _tidy_files(files: Any) -> None:
    """Clamp each file's size and mode, which follow path and hash."""
    for file in files if isinstance(files, list) else ():
        if isinstance(file, list):
            file[2:] = [_within(number, 0, schema.MAX_COUNT) for number in file[2:]]


def _tidy_left(left: Any) -> None:
    """Clamp the bytes and files that an attempt left in its directory."""
    if isinstance(left, list):
        most = (schema.MAX_COUNT, schema.MAX_CODE - 1)
        left[:2] = [_within(number, 0, bound) for number, bound in zip(left, most, strict=False)]


def _tidy_values(report: dict[str, Any]) -> None:
    """Cut captured values that are too long, and drop those beyond the maximum number."""
    values = report.get("values")
    if isinstance(values, dict):
        kept = [(name, text) for name, text in values.items() if len(name) <= schema.MAX_NAME][: schema.MAX_VALUES]
        report["values"] = {name: text[: schema.MAX_LINE] if isinstance(text, str) else text for name, text in kept}


def _bring_in(record: dict[str, Any], bounds: dict[str, tuple[int, int]]) -> None:
    for name, (least, most) in bounds.items():
        if name in record:
            record[name] = _within(record[name], least, most)


def _within(number: Any, least: int, most: int) -> Any:
    """Clamp a number; return any other value unchanged, for the decoder to refuse."""
    return min(max(number, least), most) if type(number) is int else number


def _cut(record: dict[str, Any], lengths: dict[str, int]) -> None:
    for name, length in lengths.items():
        if isinstance(record.get(name), str):
            record[name] = record[name][:length]
