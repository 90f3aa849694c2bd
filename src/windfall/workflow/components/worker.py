"""Runs a component's implementation on the host of a task.  Windfall sends this file along with every application.

    python3 .component/run.py --run VALUE…      the task: a value for each parameter, empty where it is data
    python3 .component/run.py --compile NAME    makes `binary` of a C or C++ implementation

This file travels alone: standard library and Python 3.6 only.  Beside it lies `about.json`.

  * Input data lies at `in/NAME`, a collection's members at `in/NAME/1.2`, or all in one archive at `in/NAME.tar`.
    Output data goes to `out/NAME`, a whole collection as an archive.
  * Implementations are tried by rank; the first runs whose platform fits and whose compiler or program exists.
    If one cannot be compiled and there are others, an empty binary marks it.
  * The worker compiles a binary again if it was made elsewhere and does not run here.
"""

import json
import os
import re
import shutil
import subprocess
import sys

HERE = ".component"
BUILT_IN = {"integer": int, "real": float, "string": str}
COMPILERS = {"CXX": ("CXX", ("c++", "g++", "clang++")), "C": ("CC", ("cc", "gcc", "clang"))}
CHECK = "--windfall-check"
MAX_MEMBER = 1 << 40
INDEX = re.compile(r"-?[0-9]{1,18}(\.-?[0-9]{1,18})*\Z")


class CannotRunHere(Exception):
    """An implementation cannot run on this host."""


def main(arguments):
    with open(os.path.join(HERE, "about.json"), encoding="utf-8") as stream:
        about = json.load(stream)
    try:
        if arguments[:1] == ["--compile"]:
            chosen = next(each for each in about["implementations"] if each["name"] == arguments[1])
            return compile_here(chosen, len(about["implementations"]) > 1)
        return ComponentTask(about, arguments[1:]).run()
    except CannotRunHere as error:
        sys.stderr.write("{}: {}\n".format(about["component"], error))
        return 1


# --- a task ----------------------------------------------------------------------------------------------------------


class ComponentTask:
    def __init__(self, about, values):
        self.component, self.params = about["component"], about["params"]
        self.implementations = about["implementations"]
        self.values = dict(zip((each["name"] for each in self.params), values))

    def run(self):
        for folder in ("in", "out", "out.d"):
            os.makedirs(folder, exist_ok=True)
        for each in self.params:
            self.unpack(each)
        reasons = []
        for each in self.implementations:
            try:
                code = RUN[each["lang"]](self, each)
            except CannotRunHere as error:
                reasons.append("{} {}".format(each["name"], error))
                continue
            return code or self.pack()
        raise CannotRunHere("no implementation runs here: " + "; ".join(reasons or ["there is none"]))

    def unpack(self, param):
        """Lay out an input, come as a file, an archive or a value, as one file, or one folder for a collection."""
        name, chosen = param["name"], self.values.get(param["name"], "")
        file, archive = os.path.join("in", name), os.path.join("in", name + ".tar")
        if param["collection"]:
            os.makedirs(file, exist_ok=True)
            if os.path.exists(archive):
                extract(archive, chosen, file)
        elif os.path.exists(archive):
            extract(archive, chosen, "in", name)
        elif not os.path.exists(file) and (chosen != "" or (param["mode"], param["type"]) == ("in", "string")):
            with open(file, "w", encoding="utf-8") as stream:
                stream.write(chosen)

    def pack(self):
        """Archive written collections; return 0 if every output exists."""
        for each in self.params:
            if each["mode"] == "in":
                continue
            path = os.path.join("out", each["name"])
            if each["collection"]:
                pack_members(os.path.join("out.d", each["name"]), path)
            elif not os.path.exists(path):
                sys.stderr.write("{} has not written '{}'\n".format(self.component, each["name"]))
                return 1
        return 0


def pack_members(folder, path):
    """Archive a collection, equal members as equal bytes, so that a task that reads them need not run again."""
    import tarfile
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as stream:
        for member in members(folder):
            with open(os.path.join(folder, member), "rb") as file:
                about = tarfile.TarInfo(member)
                about.size = os.fstat(file.fileno()).st_size
                stream.addfile(about, file)


def extract(archive, prefix, folder, name=""):
    """Extract the members below a prefix of indices, or with `name` the one; existing files are newer and stay."""
    import tarfile
    with tarfile.open(archive) as stream:
        for each in stream:
            if not each.isfile() or not INDEX.match(each.name) or each.size > MAX_MEMBER:
                continue
            rest = each.name
            if prefix:
                if rest != prefix and not rest.startswith(prefix + "."):
                    continue
                rest = rest[len(prefix) + 1:]
            path = os.path.join(folder, name or rest)
            if bool(rest) == bool(name) or os.path.exists(path):
                continue
            with open(path, "wb") as out:
                shutil.copyfileobj(stream.extractfile(each), out)  # type: ignore[arg-type]


def members(folder):
    """Return the names of a collection's files, in the order of their indices."""
    return sorted(os.listdir(folder) if os.path.isdir(folder) else (), key=index_of)


def index_of(name):
    if not INDEX.match(name):
        raise CannotRunHere("a collection's files are named by their indices, as in 1.2, and {!r} is not".format(name))
    return tuple(int(part) for part in name.split("."))


# --- where are we ----------------------------------------------------------------------------------------------------


def require_platform(implementation):
    import fnmatch
    wanted, about = implementation["platform"], os.uname()
    here = "{}-{}".format(about.sysname, about.machine).lower()
    if wanted and not any(fnmatch.fnmatch(here, each) for each in wanted.lower().split()):
        raise CannotRunHere("is for {}, and this is {}".format(wanted, here))


# --- shell and programs ----------------------------------------------------------------------------------------------


def texts(task):
    """Return the text a script gets for each parameter: a value, or else the path of its file."""
    found = {}
    for each in task.params:
        name = each["name"]
        path, out = os.path.join("in", name), os.path.join("out", name)
        if each["collection"]:
            folder = os.path.join("out.d", name)
            found[name] = path if each["mode"] == "in" else folder
            os.makedirs(folder, exist_ok=True)
            for member in members(path) if each["mode"] == "inout" else ():
                shutil.copyfile(os.path.join(path, member), os.path.join(folder, member))
        elif each["mode"] == "in" and each["type"] in BUILT_IN:
            found[name] = read_text(path, each["type"])
        elif each["mode"] == "in":
            found[name] = path
        else:
            found[name] = out
            if each["mode"] == "inout" and os.path.exists(path):
                shutil.copyfile(path, out)
    return found


def read_text(path, kind):
    with open(path, encoding="utf-8") as stream:
        text = stream.read()
    return text if kind == "string" else text.strip()


def shell(task, implementation):
    require_platform(implementation)
    script = os.path.join(HERE, "script.sh")
    with open(script, "w", encoding="utf-8") as stream:
        stream.write("\n".join([implementation["header"], implementation["source"], implementation["footer"]]))
    return subprocess.call(["/bin/sh", "-e", script], env=dict(os.environ, **texts(task)))


def executable(task, implementation):
    """Run a command such as `prog --size {size} {mat} > {result}`, each name in braces replaced by its parameter."""
    import shlex
    require_platform(implementation)
    words = shlex.split(implementation["source"])
    given, out = texts(task), None
    if len(words) > 2 and words[-2] == ">":
        out = given[words[-1].strip("{}")]
        words = words[:-2]
    if not words or shutil.which(words[0]) is None:
        raise CannotRunHere(
            "needs the program {}, which is not here".format(words[0] if words else "that it does not name")
        )
    words = [re.sub(r"\{(\w+)\}", lambda match: given[match.group(1)], word) for word in words]
    with open(out or os.devnull, "wb") as stream:
        return subprocess.call(words, stdout=stream if out else None)


# --- Python ----------------------------------------------------------------------------------------------------------


def python(task, implementation):
    require_platform(implementation)
    try:
        run_python(task, implementation)
    except Exception:
        return tell()
    return 0


def run_python(task, implementation):
    names = {"__name__": "__component__"}
    run_code(implementation, "header", names)
    for each in task.params:
        names[each["name"]] = python_value(each, names)
    run_code(implementation, "source", names)
    run_code(implementation, "footer", names)
    for each in task.params:
        if each["mode"] != "in":
            python_write(each, names)


def run_code(implementation, what, names):
    """Execute a part of the implementation, dedented; tracebacks count its lines from its own beginning."""
    import linecache
    import textwrap
    text, file = textwrap.dedent(implementation[what].expandtabs()), "<{} of {}>".format(what, implementation["name"])
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    exec(compile(text, file, "exec"), names)


def tell():
    """Print the traceback without the frames of this file around the component's."""
    import traceback
    kind, error, trace = sys.exc_info()
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    traceback.print_exception(kind, error, trace)
    return 1


def python_value(param, names):
    path = os.path.join("in", param["name"])
    if param["collection"]:
        found = {} if param["mode"] == "out" else {
            plain_index(member): python_read(os.path.join(path, member), param["type"], names)
            for member in members(path)}
        return found
    if param["mode"] == "out" or not os.path.exists(path):
        return None
    return python_read(path, param["type"], names)


def plain_index(name):
    index = index_of(name)
    return index[0] if len(index) == 1 else index


def python_read(path, kind, names):
    own = names.get("param_import_" + kind)
    if own is not None:
        return own(path)
    if kind in BUILT_IN:
        return BUILT_IN[kind](read_text(path, kind))
    with open(path, encoding="utf-8") as stream:
        return json.load(stream)


def python_write(param, names):
    name, value = param["name"], names.get(param["name"])
    if not param["collection"]:
        if value is not None:
            python_export(value, os.path.join("out", name), param["type"], names)
        return
    folder = os.path.join("out.d", name)
    os.makedirs(folder, exist_ok=True)
    for index, member in value.items():
        shown = ".".join(str(int(each)) for each in (index if isinstance(index, tuple) else (index,)))
        python_export(member, os.path.join(folder, shown), param["type"], names)


def python_export(value, path, kind, names):
    own = names.get("param_export_" + kind)
    if own is not None:
        own(value, path)
        return
    with open(path, "w", encoding="utf-8") as stream:
        if kind in BUILT_IN:
            value = BUILT_IN[kind](value)
            stream.write(repr(value) if kind == "real" else str(value))
        else:
            json.dump(value, stream)


# --- C and C++ -------------------------------------------------------------------------------------------------------


def compiled(task, implementation):
    require_platform(implementation)
    binary = os.path.join(HERE, implementation["name"] + ".bin")
    if not works(binary):
        compile_to(binary, implementation)
    for each in task.params:
        if each["collection"]:
            list_members(each)
    return subprocess.call([os.path.abspath(binary)])


def list_members(param):
    """Write the list of a collection's members: one line each, with indices, a tab and the path."""
    folder = os.path.join("in", param["name"])
    os.makedirs(os.path.join("out.d", param["name"]), exist_ok=True)
    with open(folder + ".list", "w", encoding="utf-8") as stream:
        for member in members(folder):
            stream.write("{}\t{}\n".format(member, os.path.join(folder, member)))


def works(binary):
    """Does the binary exist, and was it made for a machine like this one?"""
    try:
        os.chmod(binary, 0o755)
        with open(os.devnull, "r+b") as nothing:
            return subprocess.call([os.path.abspath(binary), CHECK], stdout=nothing, stderr=nothing) == 0
    except OSError:
        return False


def compile_here(implementation, others):
    """Compile an implementation for all tasks.  If this host cannot, each task's host tries again for itself."""
    try:
        require_platform(implementation)
    except CannotRunHere as error:
        return leave_empty(implementation, error)
    try:
        compile_to("binary", implementation)
    except CannotRunHere as error:
        if not others:
            raise
        return leave_empty(implementation, error)
    return 0


def leave_empty(implementation, error):
    sys.stderr.write("{} {}\n".format(implementation["name"], error))
    with open("binary", "wb"):
        return 0


def compiler_of(language):
    """Return the command of the compiler that the environment names, else of a usual one that this host has."""
    import shlex
    variable, usual = COMPILERS[language]
    compiler = shlex.split(os.environ.get(variable, "")) or [each for each in usual if shutil.which(each)][:1]
    if not compiler:
        raise CannotRunHere("needs a compiler for {}, and none is here".format("C++" if language == "CXX" else "C"))
    return compiler


def compile_to(binary, implementation):
    """Compile in the task's own directory; the compiler's messages go to the task's error output."""
    import shlex
    language = implementation["lang"]
    compiler = compiler_of(language)
    source = os.path.join(HERE, implementation["name"] + (".cpp" if language == "CXX" else ".c"))
    with open(source, "w", encoding="utf-8") as stream:
        stream.write(implementation["program"])
    libs = [each if each.startswith("-") or "/" in each or each.endswith(".a") else "-l" + each
            for each in implementation["libs"].replace(",", " ").split()]
    flags = shlex.split(os.environ.get("CXXFLAGS" if language == "CXX" else "CFLAGS", "-O2"))
    code = subprocess.call(compiler + flags + ["-o", binary, source] + libs)
    if code or not works(binary):
        raise CannotRunHere("could not be compiled")


RUN = {"SHELL": shell, "EXECUTABLE": executable, "PYTHON": python, "C": compiled, "CXX": compiled}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
