#!/usr/bin/env bash
# Weakens the lock-free protocol in one place at a time and checks that a loom model notices. Each row of
# the table below is one such mutant; the result of a full run is the table in DESIGN.md section 3.
#
# By hand, not in CI: it builds the crate once a row, and takes about as many minutes as there are rows
# for each quarter of a minute that a build takes.
#
# Usage: ci/weaken.sh [PATTERN]     only the rows whose name matches a glob, e.g. 'control*'
#
# WEAKEN_TARGET is the target folder of all builds (target/weaken), WEAKEN_LIMIT the seconds that the
# models of a row may run (300). Fails if a row is not as expected, or its text is not in the source.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
only=${1:-*}
limit=${WEAKEN_LIMIT:-300}
export CARGO_TARGET_DIR=${WEAKEN_TARGET:-$PWD/target/weaken}
export CARGO_PROFILE_RELEASE_DEBUG=0
export RUSTFLAGS='--cfg seawall_loom'

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -R src tests examples Cargo.toml Cargo.lock README.md "$work"
mkdir "$work/benches"
cp benches/*.rs "$work/benches"

rows=0
wrong=0

report() {
    printf '%-44s %-10s %s\n' "$@"
}

# Replaces a text in a file of the copy, which must hold it a number of times.
replace() {
    local file=$1 times=$2 old=$3 new=$4 text rest count=0
    text=$(<"$file")
    rest=$text
    while [[ $rest == *"$old"* ]]; do
        rest=${rest#*"$old"}
        count=$((count + 1))
    done
    [[ $count == "$times" ]] || return 1
    printf '%s\n' "${text//"$old"/"$new"}" >"$file"
}

# Runs models and prints which of them failed, and why; nothing if none did.
failures() {
    local depth=$1 log=$work/log status=0
    shift
    (cd "$work" && LOOM_MAX_PREEMPTIONS=$depth timeout "$limit" \
        cargo test --release --lib -- --test-threads 1 "$@") \
        >"$log" 2>&1 || status=$?
    [[ $status != 0 ]] || return 0
    if [[ $status == 124 ]]; then
        echo "TIMEOUT"
        return
    fi
    # Also a model that aborts, and so leaves its line unfinished.
    awk '/^test .*::loom_.* \.\.\./ && !/ ok$/ { sub(/.*::/, "", $2); print $2 }' "$log" |
        paste -sd ' ' -
}

# mutant NAME FILE TIMES OLD NEW DEPTH EXPECTATION MODEL..
#
# TIMES: how often OLD is in the file; all of it is replaced. DEPTH: preemptions. MODEL: names of models,
# or what they begin with. EXPECTATION: `fails`, or `survives: REASON`.
mutant() {
    local name=$1 file=$2 times=$3 old=$4 new=$5 depth=$6 expectation=$7 failed got started=$SECONDS
    shift 7
    # shellcheck disable=SC2053  # a glob on purpose
    [[ $name == $only ]] || return 0
    rows=$((rows + 1))
    if ! replace "$work/src/$file" "$times" "$old" "$new"; then
        report "$name" BROKEN "$file has not this text $times times"
        wrong=$((wrong + 1))
        return
    fi
    if (cd "$work" && cargo test --release --lib --no-run) >"$work/log" 2>&1; then
        failed=$(failures "$depth" "$@")
        case $failed in
        '') got=survives ;;
        TIMEOUT) got=timeout ;;
        *) got=fails ;;
        esac
    else
        got=BROKEN failed="does not build: $(grep -m1 '^error' "$work/log" || true)"
    fi
    if [[ $got == fails ]]; then
        report "$name" killed "at $depth by $failed ($((SECONDS - started)) s)"
    else
        report "$name" "$got" "at $depth, $* ($((SECONDS - started)) s) $failed"
    fi
    if [[ $got != "${expectation%%:*}" ]]; then
        report "" UNEXPECTED "$expectation"
        wrong=$((wrong + 1))
    elif [[ $got == survives ]]; then
        report "" "" "${expectation#*: }"
    fi
    cp "src/$file" "$work/src/$file"
}

one_key='loom_only_one_of_two loom_insert_remove_and_read loom_a_slot_changes_hands loom_an_entry_is_whole'

# Orderings of a bucket.

# shellcheck disable=SC2086  # names of models, to be split
{
mutant 'control: load Relaxed' table/bucket.rs 1 \
    'self.control.load(Acquire)' \
    'self.control.load(crate::sync::Relaxed)' \
    2 fails $one_key

mutant 'control: CAS Relaxed' table/bucket.rs 1 \
    'self.control.compare_exchange(from.raw(), to.raw(), AcqRel, Acquire)' \
    'self.control.compare_exchange(from.raw(), to.raw(), crate::sync::Relaxed, Acquire)' \
    2 fails $one_key

mutant 'slot: load in word() Relaxed' table/bucket.rs 1 \
    'self.slot(slot).load(Acquire)' \
    'self.slot(slot).load(crate::sync::Relaxed)' \
    2 fails $one_key

mutant 'slot: load in find() Relaxed' table/find.rs 2 \
    'Word::from_raw(slot.load(Acquire))' \
    'Word::from_raw(slot.load(crate::sync::Relaxed))' \
    2 fails $one_key

mutant 'slot: load in tagged() Relaxed' table/bucket.rs 1 \
    'self.slots[slot as usize].load(Acquire)' \
    'self.slots[slot as usize].load(crate::sync::Relaxed)' \
    2 'survives: the slot is loaded again for a hit, and no model hangs anything on a miss' $one_key

mutant 'slot: CAS Relaxed' table/bucket.rs 1 \
    'self.slot(slot).compare_exchange(from.raw(), to.raw(), AcqRel, Acquire)' \
    'self.slot(slot).compare_exchange(from.raw(), to.raw(), crate::sync::Relaxed, Acquire)' \
    2 fails $one_key

mutant 'extension: load of the link Relaxed' table/bucket.rs 1 \
    'let mut line = next.load(Acquire);
            if' \
    'let mut line = next.load(crate::sync::Relaxed);
            if' \
    2 fails loom_two_inserters_extend

mutant 'extension: CAS of the link Relaxed' table/bucket.rs 1 \
    'next.compare_exchange(ptr::null_mut(), line, AcqRel, Acquire)' \
    'next.compare_exchange(ptr::null_mut(), line, crate::sync::Relaxed, Acquire)' \
    2 fails loom_two_inserters_extend
}

# Orderings of growth.

mutant 'root: load Relaxed' table/mod.rs 1 \
    'let root = self.root.load(Acquire);' \
    'let root = self.root.load(Relaxed);' \
    2 fails loom_growth_of_a_grown

mutant 'root: CAS Relaxed' table/grow.rs 1 \
    'self.root.compare_exchange(old, new, AcqRel, Acquire)' \
    'self.root.compare_exchange(old, new, crate::sync::Relaxed, Acquire)' \
    2 fails loom_growth_of_a_grown

mutant 'previous: load Relaxed' table/mod.rs 1 \
    'let previous = table.previous.load(Acquire);' \
    'let previous = table.previous.load(Relaxed);' \
    2 fails loom_growth_of_a_grown loom_late_helpers

mutant 'previous: CAS Relaxed' table/grow.rs 1 \
    'table.previous.compare_exchange(old, ptr::null_mut(), AcqRel, Acquire)' \
    'table.previous.compare_exchange(old, ptr::null_mut(), crate::sync::Relaxed, Acquire)' \
    2 fails loom_growth_of_a_grown loom_late_helpers

mutant 'moved: load Relaxed' table/grow.rs 1 \
    'table.moved.load(Acquire)' \
    'table.moved.load(crate::sync::Relaxed)' \
    2 'survives: no model has a third thread that learns of the end of the growth from the counter alone' loom_growth_of_a_grown loom_late_helpers

mutant 'moved: CAS Relaxed' table/grow.rs 1 \
    'table.moved.compare_exchange(index, index + 1, AcqRel, Acquire)' \
    'table.moved.compare_exchange(index, index + 1, crate::sync::Relaxed, Acquire)' \
    2 'survives: no model has a third thread that learns of the end of the growth from the counter alone' loom_growth_of_a_grown loom_late_helpers

# Orderings of the state word.

mutant 'state: load Relaxed' node/mod.rs 1 \
    'let raw = self.state.load(Acquire);' \
    'let raw = self.state.load(Relaxed);' \
    2 'survives: a block is plain memory, which loom does not watch' loom_two_marks loom_a_mark

mutant 'state: CAS Relaxed' node/mod.rs 1 \
    'self.state.compare_exchange(from.raw(), new, AcqRel, Relaxed)' \
    'self.state.compare_exchange(from.raw(), new, Relaxed, Relaxed)' \
    2 'survives: a block is plain memory, which loom does not watch' loom_two_marks loom_a_mark

# Orderings of flights.

mutant 'flight: finish Relaxed' flight/word.rs 1 \
    'self.0.compare_exchange(word, word | DONE | shared, AcqRel, Acquire)' \
    'self.0.compare_exchange(word, word | DONE | shared, crate::sync::Relaxed, Acquire)' \
    2 fails loom_flight_who_joins loom_flight_two_who_join

mutant 'flight: load of the phase Relaxed' flight/word.rs 1 \
    'phase_of(self.0.load(Acquire))' \
    'phase_of(self.0.load(crate::sync::Relaxed))' \
    2 fails loom_flight_who_joins loom_flight_two_who_join

mutant 'flight: join looks, then counts' flight/word.rs 1 \
    'match self.0.compare_exchange(word, word + 1, AcqRel, Acquire) {' \
    'match Ok::<u64, u64>(self.0.fetch_add(1, AcqRel)) {' \
    2 fails loom_flight_nobody_joins loom_flight_who_joined

mutant 'flight: a leader that is not alone leaves' flight/word.rs 1 \
    'self.0.compare_exchange(1, 1 | CLOSED, Relaxed, Relaxed).is_ok()' \
    'self.0.load(Relaxed) == 1 && { self.0.store(1 | CLOSED, Relaxed); true }' \
    2 fails loom_flight_who_joined

mutant 'waiters: push Relaxed' flight/waiters.rs 1 \
    'self.head.compare_exchange(head, pushed, AcqRel, Relaxed)' \
    'self.head.compare_exchange(head, pushed, Relaxed, Relaxed)' \
    2 fails loom_flight_no_wake loom_flight_two_who_join

mutant 'waiters: the walker only loads' flight/waiters.rs 1 \
    'while let Err(now) = self.head.compare_exchange(head, head, AcqRel, Acquire) {' \
    'while let Err(now) = Ok::<_, *mut Place>(head) {' \
    2 fails loom_flight_no_wake loom_flight_no_thread

mutant 'waiters: push forgets the threads' flight/waiters.rs 1 \
    'address | head.addr() & THREADS' \
    'address' \
    2 fails loom_flight_a_thread_and

mutant 'waiters: a thread announced Relaxed' flight/waiters.rs 1 \
    'self.head.compare_exchange(head, announced, AcqRel, Relaxed)' \
    'self.head.compare_exchange(head, announced, Relaxed, Relaxed)' \
    2 fails loom_flight_no_thread loom_flight_a_thread_and

mutant 'waiters: a thread announced is not announced again' flight/waiters.rs 1 \
    'let announced = head.map_addr(|address| address | THREADS);' \
    'let announced = head.map_addr(|address| address | THREADS); if head == announced { return heard; }' \
    2 fails loom_flight_no_thread loom_flight_a_thread_and

mutant 'bell: rung Relaxed' sync/bell.rs 1 \
    'self.rung.fetch_add(1, Release)' \
    'self.rung.fetch_add(1, crate::sync::Relaxed)' \
    2 fails loom_flight_no_thread

mutant 'bell: heard Relaxed' sync/bell.rs 1 \
    'self.rung.load(Acquire)' \
    'self.rung.load(crate::sync::Relaxed)' \
    2 fails loom_flight_no_thread

mutant 'waiters: a place is freed Relaxed' flight/waiters.rs 1 \
    'place.taken.store(false, Release)' \
    'place.taken.store(false, Relaxed)' \
    2 'survives: the waker of a place has an order of its own, and nothing else is in it' loom_flight_no_wake loom_flight_a_free loom_flight_a_seat

mutant 'participant: told at once, and its waker stays' flight/participant.rs 1 \
    'self.flight.waiters.hush(seat);' \
    'let _ = seat;' \
    2 fails loom_flight_no_waker

mutant 'drive: a look after unlocking only loads' flight/mod.rs 1 \
    'if self.due.compare_exchange(false, false, AcqRel, Acquire).is_err() {' \
    'if self.due.load(Acquire) {' \
    2 fails loom_flight_a_load

mutant 'drive: no look after unlocking' flight/mod.rs 1 \
    'if self.due.compare_exchange(false, false, AcqRel, Acquire).is_err() {' \
    'if false {' \
    2 fails loom_flight_a_load

mutant 'install: nobody is woken' flight/mod.rs 1 \
    'self.shared.store(true, Release);
        // Who' \
    'self.shared.store(true, Release);
        if true {
            return;
        }
        // Who' \
    2 fails loom_flight_who_came_before

mutant 'heed: of void only a load' flight/mod.rs 1 \
    'self.void.compare_exchange(false, false, AcqRel, Acquire).is_err()' \
    'self.void.load(Acquire)' \
    2 fails loom_flight_a_void

mutant 'make_void: only a store' flight/mod.rs 1 \
    'self.void.swap(true, AcqRel);' \
    'self.void.store(true, Release);' \
    2 fails loom_flight_a_void

mutant 'heed: of marked only a load' flight/mod.rs 1 \
    'match self.marked.compare_exchange(0, 0, AcqRel, Acquire) {' \
    'match self.marked().map_or(Ok::<u64, u64>(0), Err) {' \
    2 fails loom_flight_a_mark

# What a load publishes.

mutant 'fill: swap of the state Relaxed' node/mod.rs 1 \
    'let old = self.state.swap(state.into_raw(), AcqRel);' \
    'let old = self.state.swap(state.into_raw(), Relaxed);' \
    2 fails loom_flight_what_is_published

mutant 'finish: nothing is heeded' engine/publish.rs 1 \
    'match ticket.flight.heed() {' \
    'match Said::Nothing {' \
    2 fails loom_flight_publication_of_a_refresh

# What a caller sees who is refused (G6).

mutant 'pool take: CAS Acquire' guard/pool.rs 1 \
    'compare_exchange(word, taken, AcqRel, Acquire)' \
    'compare_exchange(word, taken, Acquire, Acquire)' \
    2 fails loom_flight_no_caller

mutant 'rate take: CAS Relaxed' guard/rate.rs 1 \
    'compare_exchange(word, next, Release, Acquire)' \
    'compare_exchange(word, next, Relaxed, Acquire)' \
    2 fails loom_flight_no_caller

mutant 'pool look: Relaxed' guard/pool.rs 1 \
    'let word = self.word.load(Acquire);
        match self.limit()' \
    'let word = self.word.load(Relaxed);
        match self.limit()' \
    2 fails loom_flight_no_caller

mutant 'pool stripe: add Relaxed' guard/pool.rs 1 \
    'count.fetch_add(amount, Release);' \
    'count.fetch_add(amount, Relaxed);' \
    2 fails loom_guard_what_was_taken

mutant 'pool stripes: load Relaxed' guard/pool.rs 1 \
    'part(free).load(Acquire)' \
    'part(free).load(Relaxed)' \
    2 fails loom_guard_what_was_taken

# Epochs.

mutant 'pin: no light fence' epoch/registry.rs 1 \
    'barrier::light();' \
    '' \
    2 fails loom_epoch

mutant 'fence: none' epoch/registry.rs 1 \
    'barrier::heavy();' \
    'true;' \
    2 fails loom_epoch

mutant 'fence: the epoch is read after it' epoch/registry.rs 1 \
    'self.fenced.store(current, Release);' \
    'self.fenced.store(self.current.load(Acquire), Release);' \
    2 fails loom_epoch

mutant 'bounds: no fence' epoch/registry.rs 1 \
    'barrier::full();
        // ORDERING (E4)' \
    '// ORDERING (E4)' \
    2 fails loom_epoch

mutant 'claim: no fence' epoch/registry.rs 1 \
    'barrier::full();
        local' \
    'local' \
    2 fails loom_epoch

mutant 'bounds: beyond the current epoch' epoch/registry.rs 1 \
    'Bounds { now: current, if_fenced: current }' \
    'Bounds { now: u64::MAX, if_fenced: current }' \
    2 fails loom_epoch

mutant 'bounds: no look at those who idle' epoch/registry.rs 1 \
    'bounds.now = bounds.now.min(epoch.max(fenced));' \
    '' \
    2 fails loom_epoch

mutant 'bounds: word Relaxed' epoch/registry.rs 1 \
    'local.word.load(Acquire)' \
    'local.word.load(Relaxed)' \
    2 fails loom_epoch

mutant 'bounds: taken Relaxed' epoch/registry.rs 1 \
    'local.taken.load(Acquire)' \
    'local.taken.load(Relaxed)' \
    2 fails loom_epoch

mutant 'bounds: current Relaxed' epoch/registry.rs 1 \
    'let current = self.current.load(Acquire);
        // H2' \
    'let current = self.current.load(Relaxed);
        // H2' \
    2 'survives: the fence that follows acquires as well' loom_epoch

mutant 'fence: current Relaxed' epoch/registry.rs 1 \
    'let current = self.current.load(Acquire);
        let fenced' \
    'let current = self.current.load(Relaxed);
        let fenced' \
    2 'survives: the fence that follows acquires as well' loom_epoch

mutant 'fenced: store Relaxed' epoch/registry.rs 1 \
    'self.fenced.store(current, Release);' \
    'self.fenced.store(current, Relaxed);' \
    2 fails loom_epoch

mutant 'fenced: load Relaxed' epoch/registry.rs 1 \
    'self.fenced.load(Acquire)' \
    'self.fenced.load(Relaxed)' \
    2 fails loom_epoch

mutant 'advance: Relaxed' epoch/registry.rs 1 \
    'self.current.fetch_add(STEP, AcqRel)' \
    'self.current.fetch_add(STEP, Relaxed)' \
    2 fails loom_epoch

mutant 'pin: current Relaxed' epoch/registry.rs 1 \
    'epochs.current.load(Acquire)' \
    'epochs.current.load(Relaxed)' \
    2 fails loom_epoch

mutant 'pin: word Relaxed' epoch/registry.rs 1 \
    'self.word.store(epoch | PINNED, Release);' \
    'self.word.store(epoch | PINNED, Relaxed);' \
    2 fails loom_epoch

mutant 'unpin: word Relaxed' epoch/registry.rs 1 \
    'self.word.store(self.word.load(Relaxed) & !PINNED, Release);' \
    'self.word.store(self.word.load(Relaxed) & !PINNED, Relaxed);' \
    2 fails loom_epoch

mutant 'local: given back Relaxed' epoch/registry.rs 1 \
    'self.taken.store(false, Release);' \
    'self.taken.store(false, Relaxed);' \
    2 fails loom_epoch

mutant 'local: taken over Relaxed' epoch/registry.rs 1 \
    'compare_exchange(false, true, Acquire, Relaxed)' \
    'compare_exchange(false, true, Relaxed, Relaxed)' \
    2 'survives: the fence that follows acquires as well' loom_epoch

mutant 'local: pushed Relaxed' epoch/registry.rs 1 \
    'self.locals.compare_exchange(first, raw, AcqRel, Relaxed)' \
    'self.locals.compare_exchange(first, raw, Relaxed, Relaxed)' \
    2 fails loom_epoch

# Steps of the protocol.

mutant 'operations: no fence after changes' engine/mod.rs 1 \
    'barrier::after_changes();' \
    '' \
    2 fails loom_a_call

mutant 'may_begin: no second look' engine/flights.rs 1 \
    'Some(refusal) if is_unchanged() =>' \
    'Some(refusal) if is_unchanged() || true =>' \
    2 fails loom_flight_no_caller

mutant 'sample: no validation' table/sample.rs 1 \
    '(is_live(seen.word) && self.bucket.control() == self.control)' \
    'is_live(seen.word)' \
    2 fails loom_what_was_sampled

mutant 'find: no validation' table/find.rs 1 \
    'Some(hit) if bucket.control() == control => return Some(hit),' \
    'Some(hit) => return Some(hit),' \
    3 fails loom_what_was_found

mutant 'probe: no validation' table/change.rs 1 \
    'Some(found) if bucket.control() == control => return Probe::Found(found),' \
    'Some(found) => return Probe::Found(found),' \
    2 fails loom_only_one_of_two loom_two_removers loom_insert_remove loom_a_slot_changes_hands

mutant 'clean: the slot before its bit' table/change.rs 1 \
    'let Seen { slot, word } = removed;
        loop {
            let control = bucket.control();
            if !control.is_occupied(slot) {
                break;
            }
            if !control.is_ready() || bucket.word(slot) != word {' \
    'let Seen { slot, word } = removed;
        if !bucket.change_word(slot, word, Word::FREE) {
            return;
        }
        unsafe { self.limbo.retire(word.node::<()>(), Kind::Whole, guard) };
        loop {
            let control = bucket.control();
            if !control.is_occupied(slot) {
                break;
            }
            if !control.is_ready() {' \
    2 fails loom_a_removed_slot loom_removal_while loom_two_removers loom_a_slot_changes_hands

mutant 'clean: no look at the word first' table/change.rs 1 \
    'if !control.is_ready() || bucket.word(slot) != word {' \
    'if !control.is_ready() {' \
    3 fails loom_a_removed_slot

mutant 'commit: from whatever the control word is' table/change.rs 1 \
    'if bucket.change_control(control, control.with(slot)) {' \
    'let now = bucket.control();
        if bucket.change_control(now, now.with(slot)) {' \
    2 fails loom_only_one_of_two loom_two_inserters_of_one

mutant 'count_use: also in a frozen word' table/word.rs 1 \
    '(self.policy().can_be_used() && self.is_plain())' \
    'self.policy().can_be_used()' \
    2 'survives: only a count is at stake: every place is filled once, by either word' loom_a_use_is_counted

mutant 'FREE is UNUSED' table/word.rs 1 \
    'Word(std::ptr::without_provenance_mut(Self::SIDE))' \
    'Word(std::ptr::null_mut())' \
    2 fails loom_late_helpers

mutant 'look: words frozen for the other side' table/find.rs 1 \
    'word.is_frozen() && word.side() != side' \
    'word.is_frozen() && word.side() == side + 2' \
    2 fails loom_a_word_of_the_other_side

mutant 'find_slowly: no look whether it moved' table/find.rs 1 \
    'let unmoved = bucket.control() == Control::UNINIT;' \
    'let unmoved = true;' \
    2 'survives: no model tells; a hit or miss in the old bucket is right as of the load of UNINIT' loom_removal_while loom_a_word_of_the_other_side loom_growth_of_a_grown

mutant 'publish: either side retires' table/grow.rs 1 \
    'Control::ready(place)) && side == 0 {' \
    'Control::ready(place)) {' \
    2 fails loom_removal_while

mutant 'mark_stale: generation read too late' engine/invalidate.rs 1 \
    'self.stale(state, generation)' \
    'self.stale(state, self.generation())' \
    2 fails loom_a_mark

mutant 'charge: load and store' evict/mod.rs 1 \
    'match self.used.compare_exchange(used, sum, Relaxed, Relaxed) {' \
    'self.used.store(sum, Relaxed);
            match Ok::<i64, i64>(sum) {' \
    2 fails loom_two_charges loom_a_charge

printf '%d mutants, %d not as expected\n' "$rows" "$wrong"
[[ $wrong == 0 ]]
