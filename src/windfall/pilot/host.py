"""The host's identity, cores, memory, disk and GPUs: HOST and SHAPE of an enrolment (G9, G16)."""

import hashlib
import os
import sys


def host_id():
    """Return a name of this host that stays over reboots; each user gets another, so that nobody can compare them."""
    machine = _read("/etc/machine-id") or _read("/var/lib/dbus/machine-id") or _own_id()
    return hashlib.sha256("windfall {} {}".format(machine, os.getuid()).encode()).hexdigest()[:32]


def _own_id():
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    folder = os.path.join(base, "windfall")
    path = os.path.join(folder, "host-id")
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(os.urandom(16).hex() + "\n")
    except FileExistsError:
        pass
    except OSError:
        return os.uname().nodename  # without a writable home the host's name must do
    return _read(path)


def _read(path):
    try:
        with open(path) as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def hardware():
    """Return a digest of the addresses of this host's network cards, "" where it has none: of two machines with one
    id, copies of one image, it tells which is which."""
    base, found = "/sys/class/net", []
    try:
        for name in os.listdir(base):
            if _read("{}/{}/type".format(base, name)) == "1" and os.path.exists("{}/{}/device".format(base, name)):
                found.append(_read("{}/{}/address".format(base, name)))
    except OSError:
        return ""
    text = "windfall {} {}".format(" ".join(sorted(found)), os.getuid())
    return hashlib.sha256(text.encode()).hexdigest()[:32] if found else ""


def cores():
    """Return the number of cores that this process may use."""
    allowed = len(os.sched_getaffinity(0))
    quota = _read("/sys/fs/cgroup/cpu.max").split()
    if len(quota) == 2 and quota[0].isdigit() and quota[1].isdigit():
        allowed = min(allowed, max(1, int(quota[0]) // int(quota[1])))
    return allowed


def memory():
    """Return the bytes of memory, or the control group's limit where that is less."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _memory_limits():
        text = _read(path)
        if text.isdigit() and int(text) > 0:
            sizes.append(int(text))
    return min(sizes)


def _memory_limits():
    for line in _read("/proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            yield "/sys/fs/cgroup{}/memory.max".format(path.rstrip("/"))
        elif "memory" in controllers.split(","):
            yield "/sys/fs/cgroup/memory{}/memory.limit_in_bytes".format(path.rstrip("/"))


def disk(folder):
    about = os.statvfs(folder)
    return about.f_bavail * about.f_frsize


def gpus(limit=None):
    """Return [{"id", "name", "memory"}] of the GPUs for this pilot: the visible ones if an environment variable names
    them, else all; `limit` of them where one is given.
    """
    if limit == 0:
        return []
    found = _visible()
    if found is None:
        found = _nvidia() or _amd()
    return found if limit is None else _at_least(found, limit)[:limit]


def _at_least(found, count):
    """Add GPUs of unknown kind up to `count`: the user says that there are so many."""
    known = [gpu["id"] for gpu in found]
    extra = [str(i) for i in range(count) if str(i) not in known]
    return found + [_gpu(i) for i in extra[:max(0, count - len(found))]]


def _gpu(name, model="", size=0):
    return {"id": name, "name": model, "memory": size}


def _visible():
    """Return the GPUs that an environment variable names: up to the first word that names none, as CUDA reads it, such
    as -1, or the NoDevFiles of a batch system.  None: there is no such variable.
    """
    for name in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        if name in os.environ:
            words = [word.strip() for word in os.environ[name].split(",")]
            ids = words[:[_is_gpu(word) for word in words + [""]].index(False)]
            known = {gpu["id"]: gpu for gpu in _nvidia()} if ids else {}
            return [known.get(i, _gpu(i)) for i in ids]
    return None


def _is_gpu(word):
    return word.isdigit() or word.startswith(("GPU-", "MIG-"))


def _nvidia():
    try:
        devices = [n[6:] for n in os.listdir("/dev") if n.startswith("nvidia") and n[6:].isdigit()]
    except OSError:
        return []
    if not devices:
        return []
    return _nvidia_smi() or [_gpu(i) for i in sorted(devices, key=int)]


def _nvidia_smi():
    import subprocess  # late: only hosts with a device need it
    try:
        text = subprocess.check_output(
            ["nvidia-smi", "--query-gpu=index,name,memory.total", "--format=csv,noheader,nounits"],
            stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, timeout=20, universal_newlines=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return parse_smi(text)


def parse_smi(text):
    found = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 3 and fields[0].isdigit():
            size = int(fields[2]) << 20 if fields[2].isdigit() else 0
            found.append(_gpu(fields[0], fields[1], size))
    return found


def _amd():
    base = "/sys/class/kfd/kfd/topology/nodes"
    try:
        nodes = sorted(os.listdir(base), key=int)
    except (OSError, ValueError):
        return []
    real = [n for n in nodes if _read("{}/{}/gpu_id".format(base, n)) not in ("", "0")]
    return [_gpu(str(i), "AMD") for i in range(len(real))]


def describe(all_gpus):
    """Return HOST, as wire/messages.py defines it."""
    uname = os.uname()
    about = {
        "id": host_id(), "name": uname.nodename, "cores": os.cpu_count() or 1,
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "platform": "{} {} {}".format(uname.sysname, uname.release, uname.machine),
        "python": "{}.{}.{}".format(*sys.version_info[:3]),
        "boot": _read("/proc/sys/kernel/random/boot_id"), "hardware": hardware(),
    }
    if all_gpus:
        about["gpus"] = all_gpus
    return about
