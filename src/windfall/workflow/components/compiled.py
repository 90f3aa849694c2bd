"""Programs in C and C++ around an implementation: the program imports data, runs the source, exports the outputs.

A type of the user's own has import and export functions in the implementation's header.  In C++ they are those of the
YML paper, `template <> bool param_import(Matrix& param, char* filename)` and `param_export(const Matrix&, char*)`;
a type without them uses `>>` and `<<`.  In C they are `int param_import_Matrix(Matrix *, const char *)` and
`int param_export_Matrix(const Matrix *, const char *)`, which return 0 on failure.  A collection that C writes has a
function of its own, `NAME_put(value, "%d.%d", i, j)`, which exports one member at once.
"""

from __future__ import annotations

from windfall.workflow.components.files import Component, Implementation, Parameter

CXX_HEAD = r"""
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <vector>

template <class T> bool param_import(T& param, char* filename) {
    std::ifstream in(filename);
    return static_cast<bool>(in >> param);
}
template <class T> bool param_export(const T& param, char* filename) {
    std::ofstream out(filename);
    out.precision(std::numeric_limits<double>::max_digits10);
    out << param;
    out.close();
    return static_cast<bool>(out);
}
template <> inline bool param_import(std::string& param, char* filename) {
    std::ifstream in(filename, std::ios::binary);
    param.assign(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    return !in.bad();
}
typedef std::vector<long long> windfall_index;
"""
CXX_MAIN = r"""
namespace {
template <class T> void windfall_read(T& param, std::string path, bool needed) {
    if (!needed && !std::ifstream(path.c_str())) return;
    if (!param_import(param, &path[0])) {
        std::cerr << path << " could not be imported" << std::endl;
        std::exit(1);
    }
}
template <class T> void windfall_write(const T& param, std::string path) {
    if (!param_export(param, &path[0])) {
        std::cerr << path << " could not be exported" << std::endl;
        std::exit(1);
    }
}
template <class T> void windfall_read_all(std::map<windfall_index, T>& param, const std::string& list) {
    std::ifstream in(list.c_str());
    for (std::string line; std::getline(in, line);) {
        std::size_t tab = line.find('\t');
        std::istringstream parts(line.substr(0, tab));
        windfall_index index;
        for (std::string part; std::getline(parts, part, '.');) index.push_back(std::atoll(part.c_str()));
        windfall_read(param[index], line.substr(tab + 1), true);
    }
}
template <class T> void windfall_write_all(const std::map<windfall_index, T>& param, const std::string& folder) {
    for (typename std::map<windfall_index, T>::const_iterator at = param.begin(); at != param.end(); ++at) {
        std::ostringstream name;
        for (std::size_t i = 0; i < at->first.size(); ++i) name << (i ? "." : "") << at->first[i];
        windfall_write(at->second, folder + "/" + name.str());
    }
}
}
"""
C_WORDS = """auto break case char const continue default do double else enum extern float for goto if inline int long
    register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while"""
CXX_WORDS = C_WORDS.replace(" restrict", "") + """ alignas alignof and asm bool catch class compl const_cast constexpr
    decltype delete dynamic_cast explicit export false friend mutable namespace new noexcept not nullptr operator or
    private protected public reinterpret_cast static_assert static_cast template this thread_local throw true try typeid
    typename using virtual wchar_t xor"""
CXX_TYPES = {"integer": "long long", "real": "double", "string": "std::string"}

MAIN = """
int main(int windfall_count, char** windfall_words) {
if (windfall_count > 1 && !std::strcmp(windfall_words[1], "--windfall-check")) return 0;
"""
C_MAIN = MAIN.replace("std::", "")
C_HEAD = r"""
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int param_import_integer(long long *param, const char *filename) {
    FILE *in = fopen(filename, "r");
    int good = in && fscanf(in, "%lld", param) == 1;
    if (in) fclose(in);
    return good;
}
static int param_export_integer(const long long *param, const char *filename) {
    FILE *out = fopen(filename, "w");
    int good = out && fprintf(out, "%lld", *param) > 0;
    return out && fclose(out) == 0 && good;
}
static int param_import_real(double *param, const char *filename) {
    FILE *in = fopen(filename, "r");
    int good = in && fscanf(in, "%lf", param) == 1;
    if (in) fclose(in);
    return good;
}
static int param_export_real(const double *param, const char *filename) {
    FILE *out = fopen(filename, "w");
    int good = out && fprintf(out, "%.17g", *param) > 0;
    return out && fclose(out) == 0 && good;
}
static int param_import_string(char **param, const char *filename) {
    FILE *in = fopen(filename, "r");
    long size = 0;
    if (!in) return 0;
    fseek(in, 0, SEEK_END);
    size = ftell(in);
    rewind(in);
    *param = (char *) calloc(1, (size_t) size + 1);
    if (*param && fread(*param, 1, (size_t) size, in) != (size_t) size) size = -1;
    fclose(in);
    return *param && size >= 0;
}
static int param_export_string(char *const *param, const char *filename) {
    FILE *out = fopen(filename, "w");
    if (!out) return 0;
    if (*param) fputs(*param, out);
    return fclose(out) == 0;
}
static void windfall_must(int good, const char *path, const char *what) {
    if (good) return;
    fprintf(stderr, "%s could not be %s\n", path, what);
    exit(1);
}
static void windfall_member(char *path, size_t size, const char *name, const char *index, va_list words) {
    int used = snprintf(path, size, "out.d/%s/", name);
    int more = vsnprintf(path + used, size - (size_t) used, index, words);
    windfall_must(more > 0 && (size_t) (used + more) < size, name, "given such an index");
}
static size_t windfall_list(const char *path, char ***names, char ***files) {
    FILE *in = fopen(path, "r");
    char line[8192];
    size_t count = 0;
    *names = *files = NULL;
    while (in && fgets(line, sizeof line, in)) {
        char *tab = strchr(line, '\t');
        if (!tab) continue;
        *tab = 0;
        tab[1 + strcspn(tab + 1, "\n")] = 0;
        *names = (char **) realloc(*names, (count + 1) * sizeof(char *));
        *files = (char **) realloc(*files, (count + 1) * sizeof(char *));
        (*names)[count] = strcpy((char *) malloc(strlen(line) + 1), line);
        (*files)[count++] = strcpy((char *) malloc(strlen(tab + 1) + 1), tab + 1);
    }
    if (in) fclose(in);
    return count;
}
"""
C_TYPES = {"integer": "long long", "real": "double", "string": "char *"}
C_MEMBERS = """
char **{name}_index, **{name}_files;
size_t {name}_count = windfall_list("in/{name}.list", &{name}_index, &{name}_files), {name}_at;
{kind} *{name} = ({kind} *) calloc({name}_count + 1, sizeof *{name});
for ({name}_at = 0; {name}_at < {name}_count; ++{name}_at)
    windfall_must(param_import_{type}(&{name}[{name}_at], {name}_files[{name}_at]), {name}_files[{name}_at],
                  "imported");
"""
C_PUT = """
static void {name}_put({kind} value, const char *index, ...) {{
    char path[4096];
    va_list words;
    va_start(words, index);
    windfall_member(path, sizeof path, "{name}", index, words);
    va_end(words);
    windfall_must(param_export_{type}(&value, path), path, "exported");
}}
"""
C_KEEP = """
for ({name}_at = 0; {name}_at < {name}_count; ++{name}_at) {{
    char path[4096];
    FILE *there;
    snprintf(path, sizeof path, "out.d/{name}/%s", {name}_index[{name}_at]);
    there = fopen(path, "r");
    if (there) fclose(there);
    else {name}_put({name}[{name}_at], "%s", {name}_index[{name}_at]);
}}
"""
C_READ = """
{{ FILE *there = {needed} ? NULL : fopen("in/{name}", "r");
if ({needed} || there) windfall_must(param_import_{type}(&{name}, "in/{name}"), "in/{name}", "imported");
if (there) fclose(there); }}
"""
C_WRITE = 'windfall_must(param_export_{type}(&{name}, "out/{name}"), "out/{name}", "exported");'


def program(component: Component, implementation: Implementation) -> str:
    return (_cxx if implementation.lang == "CXX" else _c)(component, implementation)


def _cxx(component: Component, implementation: Implementation) -> str:
    before: list[str] = []
    after: list[str] = []
    for each in component.params:
        (_cxx_collection if each.collection else _cxx_thing)(each, before, after)
    return "\n".join([CXX_HEAD, implementation.header, CXX_MAIN, MAIN, *before, "{", implementation.source, "}", *after,
                      "return 0;", "}", implementation.footer, ""])


def _cxx_thing(each: Parameter, before: list[str], after: list[str]) -> None:
    name, kind = each.name, CXX_TYPES.get(each.type, each.type)
    before.append(f"{kind} {name}{{}};")
    if each.mode != "out":
        before.append(f'windfall_read({name}, "in/{name}", {str(each.mode == "in").lower()});')
    if each.mode != "in":
        after.append(f'windfall_write({name}, "out/{name}");')


def _cxx_collection(each: Parameter, before: list[str], after: list[str]) -> None:
    name, kind = each.name, CXX_TYPES.get(each.type, each.type)
    before.append(f"std::map<windfall_index, {kind}> {name};")
    if each.mode != "out":
        before.append(f'windfall_read_all({name}, "in/{name}.list");')
    if each.mode != "in":
        after.append(f'windfall_write_all({name}, "out.d/{name}");')


def _c(component: Component, implementation: Implementation) -> str:
    outside: list[str] = []
    before: list[str] = []
    after: list[str] = []
    for each in component.params:
        about = {"name": each.name, "kind": C_TYPES.get(each.type, each.type), "type": each.type,
                 "needed": int(each.mode == "in")}
        if each.collection:
            _c_collection(each.mode, about, outside, before, after)
            continue
        before.append("{kind} {name}; memset(&{name}, 0, sizeof {name});".format(**about))
        if each.mode != "out":
            before.append(C_READ.format(**about))
        if each.mode != "in":
            after.append(C_WRITE.format(**about))
    return "\n".join([C_HEAD, implementation.header, *outside, C_MAIN, *before, "{", implementation.source, "}", *after,
                      "return 0;", "}", implementation.footer, ""])


def _c_collection(mode: str, about: dict[str, object], outside: list[str], before: list[str], after: list[str]) -> None:
    """Add the code for a C collection; members of an `inout` array that the source did not put are exported last."""
    if mode != "in":
        outside.append(C_PUT.format(**about))
    if mode != "out":
        before.append(C_MEMBERS.format(**about))
    if mode == "inout":
        after.append(C_KEEP.format(**about))
