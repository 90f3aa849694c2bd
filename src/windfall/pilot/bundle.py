"""Builder of the zipapp: the pilot with `wire` and `errors`.  The same sources and interpreter give the same bytes.

The zipapp has each module as source and as code compiled by the building interpreter.  The code saves 25 ms at start
where the pilot runs with the same version of Python, as it does next to its server; another version sees a wrong magic
number and takes the source.
"""

import hashlib
import importlib.util
import marshal
import os
import zipfile

NAME = "windfall-pilot.pyz"
_MAIN = b"""import sys
if sys.version_info < (3, 6):
    sys.stderr.write("windfall-pilot: Python %d.%d is too old: 3.6 is the oldest\\n" % sys.version_info[:2])
    sys.exit(3)
from windfall.pilot.main import main
sys.exit(main(sys.argv[1:]))
"""
_EPOCH = (1980, 1, 1, 0, 0, 0)


def _sources():
    """Return [(name in the archive, bytes)] in a fixed order."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    files = [("__main__.py", _MAIN), ("windfall/__init__.py", b"")]
    names = ["errors.py"]
    for folder in ("pilot", "wire"):
        for at, folders, found in os.walk(os.path.join(root, folder)):
            folders.sort()
            place = os.path.relpath(at, root)
            names.extend(os.path.join(place, name) for name in sorted(found)
                         if name.endswith(".py") and (place, name) != ("pilot", "bundle.py"))
    for name in names:
        with open(os.path.join(root, name), "rb") as file:
            files.append(("windfall/" + name.replace(os.sep, "/"), file.read()))
    return files


def _compiled(name, source):
    """Return a hash-based .pyc that Python does not check.  Marshal versions above 2 depend on reference counts."""
    flags = (1).to_bytes(4, "little")
    code = compile(source, name, "exec", dont_inherit=True)
    return importlib.util.MAGIC_NUMBER + flags + importlib.util.source_hash(source) + marshal.dumps(code, 2)


def _entries():
    for name, source in _sources():
        yield name, source
        if name != "__main__.py":
            yield name + "c", _compiled(name, source)


def build(dest_dir):
    """Write the zipapp into `dest_dir`; return (path, sha256)."""
    os.makedirs(dest_dir, exist_ok=True)
    path = os.path.join(dest_dir, NAME)
    part = "{}.{}.new".format(path, os.getpid())
    with open(part, "wb") as file:
        file.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, data in _entries():
                info = zipfile.ZipInfo(name, _EPOCH)
                info.external_attr = 0o644 << 16
                info.create_system = 3
                archive.writestr(info, data)
    os.chmod(part, 0o755)
    os.rename(part, path)
    with open(path, "rb") as file:
        return path, hashlib.sha256(file.read()).hexdigest()
