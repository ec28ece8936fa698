#!/usr/bin/env bash
# Checks that the modules of src/ import one another in one direction only, and that a few dangerous
# tools are named only where they belong. Prints each offence as `file:line: what`; any fails the run.
#
# Looked at: code outside comments and outside `#[cfg(test)]` / `#[cfg(all(test, ..))]` items, their
# files included. Not looked at: src/lib.rs, which may name everything.
#
# Usage: ci/layers.sh [SRC]     (SRC: the source folder to check, src/ of this repository by default)
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
src=${1:-src}

# One top-level module a line, lowest first, and which others it may reach by `crate::`. A module may
# always name itself. `*` also allows what lib.rs re-exports. A module that is missing from src/ is no
# error; one that is missing here is.
allowed='
guide:
sync:
trace:
error:
listener:
clock:      sync
stats:      sync
bloom:      sync
flight:     sync clock trace
epoch:      sync
table:      sync epoch
freshness:  sync clock error
tags:       sync table
node:       sync table freshness tags answer guard
options:    clock freshness
evict:      sync table listener
guard:      sync clock error flight
answer:     flight guard
engine:     sync clock error freshness stats listener table tags node options evict bloom flight guard answer
load:       sync clock error freshness stats listener table tags node options evict bloom flight guard answer engine trace
entry:      freshness engine
builder:    *
iter:       *
metrics:    *
cache:      *
'

# A regular expression (on code without spaces around `::`, where `crate::sync` has become
# `crate_sync`), what to call it, and the only paths that may match, separated by commas: a file, or a
# folder with its `/`. Exceptions: epoch/ keeps a thread's place among the readers; table/reclaim/ has a
# stand-in for itself in models; flight/nested.rs knows what each thread is loading.
only='
(^|[^A-Za-z0-9_])sync::atomic|(std|core)::(sync::)?[{][^;]*atomic  std-atomics      sync/
(^|[^A-Za-z0-9_])loom::                                            loom             sync/,table/reclaim/model.rs
(^|[^A-Za-z0-9_])(Sync)?UnsafeCell([^A-Za-z0-9_]|$)                UnsafeCell       sync/
(^|[^A-Za-z0-9_])thread_local!                                     thread_local!    sync/,epoch/process.rs,flight/nested.rs
'

[ -d "$src" ] || { echo "layers: no folder $src" >&2; exit 1; }

export allowed only

# Files and folders of modules that are declared for tests only, one a line, relative to $src.
tests=$(find "$src" -name '*.rs' | while IFS= read -r file; do
    path=${file#"$src"/}
    case $path in
        lib.rs) folder= ;;
        */mod.rs) folder=${path%mod.rs} ;;
        *) folder=${path%.rs}/ ;;
    esac
    awk -v folder="$folder" '
        /^#\[cfg\((test\)|all\(test[,)])/ { test = 1; next }
        test && /^#\[/ { next }
        test && /^(pub(\([a-z]+\))? )?mod [a-z0-9_]+;/ {
            sub(/;.*/, ""); sub(/.* /, ""); print folder $0 ".rs"; print folder $0 "/"
        }
        { test = 0 }
    ' "$file"
done)

for_tests() {
    local name
    for name in $tests; do
        case $1 in "$name" | "$name"*) return 0 ;; esac
    done
    return 1
}

found=$(find "$src" -name '*.rs' | LC_ALL=C sort |
    while IFS= read -r file; do
        path=${file#"$src"/}
        if [ "$path" != lib.rs ] && ! for_tests "$path"; then
            awk -v file="$file" -v path="$path" '
function report(what) { print file ":" start ": " what }

# One name after `crate::`.
function check_name(name) {
    if (name == "" || name == module) return
    if (may == "*") return
    if ((" " may " ") ~ (" " name " ")) return
    if (name in known) report(module " must not import " name)
    else report(module " reaches crate::" name ", which is no module it may name")
}

# The first name of every element of `{a::b, c::{d, e}}`, `text` starting after the opening brace.
function check_group(text,    depth, i, c, word, taken) {
    depth = 0; word = ""; taken = 0
    for (i = 1; i <= length(text); i++) {
        c = substr(text, i, 1)
        if (c == "{") { depth++; taken = 1 }
        else if (c == "}") { if (depth-- == 0) break }
        else if (c == "," && depth == 0) { check_name(word); word = ""; taken = 0 }
        else if (c ~ /[A-Za-z0-9_]/ && !taken && depth == 0) word = word c
        else if (word != "" && depth == 0) taken = 1
    }
    check_name(word)
}

# Whether this file is in one of the places.
function at_home(places,    list, i, n) {
    n = split(places, list, ",")
    for (i = 1; i <= n; i++) if (index(path, list[i]) == 1) return 1
    return 0
}

function check(code,    rest, name, i) {
    gsub(/[ \t]*::[ \t]*/, "::", code)
    rest = code
    while (match(rest, /(^|[^A-Za-z0-9_$])crate::/)) {
        rest = substr(rest, RSTART + RLENGTH)
        if (substr(rest, 1, 1) == "{") check_group(substr(rest, 2))
        else if (match(rest, /^[A-Za-z0-9_]+/)) check_name(substr(rest, 1, RLENGTH))
    }
    # From the outermost level of a top-level module, `super` is the crate root.
    if (top && code ~ /^(pub(\([a-z]+\))? )?use super::/) report("write crate:: for the crate root")
    if (code ~ /^(pub(\([a-z]+\))? )?use super::super::/) report("write crate:: for what lies further up")
    gsub(/crate::sync/, "crate_sync", code)
    for (i = 1; i <= rules; i++)
        if (code ~ pattern[i] && !at_home(place[i])) report(label[i] " only in " place[i])
}

BEGIN {
    module = path; sub(/\/.*/, "", module); sub(/\.rs$/, "", module)
    top = path ~ /^[^\/]+(\/mod)?\.rs$/
    lines = split(ENVIRON["allowed"], line, "\n")
    for (i = 1; i <= lines; i++) {
        if (line[i] !~ /:/) continue
        name = line[i]; sub(/:.*/, "", name); known[name] = 1
        if (name == module) { may = line[i]; sub(/^[^:]*:[ ]*/, "", may); gsub(/[ ]+/, " ", may) }
    }
    lines = split(ENVIRON["only"], line, "\n")
    for (i = 1; i <= lines; i++)
        if (split(line[i], field, " ") == 3) {
            rules++; pattern[rules] = field[1]; label[rules] = field[2]; place[rules] = field[3]
        }
    if (!(module in known)) {
        start = 1; report("module " module " is not in the table of ci/layers.sh")
        stopped = 1; exit
    }
}

{
    text = $0
    indent = text; sub(/[^ ].*/, "", indent)
    sub(/^[ \t]+/, "", text)
    sub(/\/\/.*/, "", text); sub(/[ \t]+$/, "", text)
}
# Inside a test item: up to the line that closes it.
skip == "block" { if (text ~ /^}/ && indent == skip_indent) skip = ""; next }
skip == "item" {
    if (text == "" || text ~ /^#\[/) next
    if (!head) {
        skip_indent = indent; head = 1
        in_use = text ~ /^(pub(\([a-z]+\))? )?use /
        # What ends at a brace or a semicolon; a field or an arm ends at a comma too.
        declares = text ~ /(^| )(fn|impl|mod|struct|enum|union|trait) /
    }
    if (in_use) { if (text ~ /;$/) skip = "" }
    else if (text ~ /\{$/) skip = "block"
    else if (text ~ /[;}]$/ || (text ~ /,$/ && !declares)) skip = ""
    next
}
text ~ /^#\[cfg\((test\)|all\(test[,)])/ { skip = "item"; head = 0; next }
text == "" || text ~ /^#!?\[/ { next }
{
    if (pending == "") start = FNR
    pending = pending == "" ? text : pending " " text
    # A `use` is one statement, however many lines it has; anything else is looked at line by line.
    if (pending ~ /^(pub(\([a-z]+\))? )?use / && pending !~ /;$/) next
    check(pending)
    pending = ""
}
END { if (!stopped && pending != "") check(pending) }
' "$file"
        fi
    done)

if [ -n "$found" ]; then
    printf '%s\n' "$found"
    echo "layers: $(printf '%s\n' "$found" | wc -l | tr -d ' ') offence(s)" >&2
    exit 1
fi
echo "layers: ok"
