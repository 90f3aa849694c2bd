"""Counts the flushes that reach the disk, from outside the server: a shim under its C library.

The server runs with the shim preloaded.  Each fsync or fdatasync of the journal that has *succeeded* adds one to a
counter in a shared file, which outlives every kill.  A test that reads the counter before a request and after its
answer knows whether the server flushed between them.
"""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static _Atomic unsigned long *counter;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FLUSH_COUNTER");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (page != MAP_FAILED) counter = page;
}

static void count(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return;
    path[n] = 0;
    if (counter && strstr(path, "/journal.db")) atomic_fetch_add(counter, 1);
}

#define COUNTED(name) int name(int fd) { \
    static int (*real)(int); \
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name); \
    int answer = real(fd); \
    if (answer == 0) count(fd); \
    return answer; }

COUNTED(fsync)
COUNTED(fdatasync)
"""


class Flushes:
    """A counter of flushes: `environment` is for the server, `count()` its flushes since the start."""

    def __init__(self, folder: Path) -> None:
        compiler = compiler_here()
        if compiler is None:
            pytest.skip("no C compiler, so flushes cannot be counted from outside")
        source, shim, counter = folder / "flushes.c", folder / "flushes.so", folder / "flushes"
        source.write_text(SHIM)
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", shim, source, "-ldl"], check=True)
        counter.write_bytes(bytes(4096))
        with counter.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), 4096)
        self.environment = {"FLUSH_COUNTER": str(counter), "LD_PRELOAD": _preload(shim)}

    def count(self) -> int:
        return int(struct.unpack_from("L", self._page)[0])


def compiler_here() -> str | None:
    return shutil.which("gcc") or shutil.which("cc")


def _preload(shim: Path) -> str:
    before = os.environ.get("LD_PRELOAD", "")
    return f"{shim}:{before}" if before else str(shim)
