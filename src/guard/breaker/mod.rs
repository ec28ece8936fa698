//! The breaker: leaves a sick origin alone, and asks it now and then whether it is well again.
//!
//! Three words. The main one ([`word`]) holds state, operator's order, failures in a row, probes and the
//! era; every decision is one CAS of it, so of any number of racing results exactly one opens it. The end
//! of the pause ([`pause`]) and the window of the last calls ([`window`]) carry the era they belong to.
//!
//! | from | to | by |
//! |---|---|---|
//! | closed | open | a failure that reaches the count in a row; a result with which a rate is reached |
//! | open | half-open | the first call after the pause, which is the first probe |
//! | half-open | closed | the success of the last of all probes |
//! | half-open | open | the failure of any probe, for a full pause |
//! | half-open | half-open, next era | a call when all probes are out and none was started for a full pause |
//! | any | held open or closed | an operator; until released, which closes it |
//! | any | closed, or off | a change of the settings |
//!
//! Each of these raises the era, so that results of earlier calls change nothing.

mod options;
mod pause;
mod window;
mod word;

use std::fmt;

use crate::sync::{AcqRel, Acquire, AtomicU64, Padded, Relaxed};

pub use self::options::BreakerOptions;
use self::options::{Rules, Settings};
use self::pause::Pause;
use self::window::Totals;
use self::window::Window;
use self::word::{Order, State, Word};
use super::{Classified, MILLION};

/// What a [`Breaker`] does at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BreakerState {
    /// Calls go through, and their results are watched. Also when no breaker is configured.
    Closed,
    /// Calls are refused. It stays so until a call comes after the pause.
    Open,
    /// A few probes go through, all other calls are refused.
    HalfOpen,
    /// An operator's order: all calls are refused.
    ForcedOpen,
    /// An operator's order: all calls go through, and nobody watches.
    ForcedClosed,
}

/// Refuses calls while the origin fails, then lets a few probes through to see whether it works again.
///
/// *Closed*, it counts results as calls end. Calls that run already when it opens run on: with a
/// threshold of three failures and a limit of eight loads, ten loads may start before it opens. *Open*,
/// it refuses all calls for a pause. The first call after the pause makes it *half-open*: no more than
/// [a number of probes](BreakerOptions::probes) go through; when all of them have succeeded it closes, and
/// when one fails it opens again, for a full pause. A probe that does not answer for as long as a pause
/// is given up: another may go.
///
/// Results of calls that were let through before the state last changed count for nothing. A load that
/// was cancelled is no failure, nor is a refusal. All methods take effect at once and never block.
pub struct Breaker {
    word: Padded<AtomicU64>,
    pause: Pause,
    window: Window,
    settings: Settings,
    openings: AtomicU64,
}

/// A call's leave to go, with the era it is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pass {
    era: u32,
    role: Role,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Its result does not matter.
    Unwatched,
    Call,
    Probe,
}

impl Pass {
    /// For a call that goes although it was refused.
    pub(super) const UNWATCHED: Pass = Pass { era: 0, role: Role::Unwatched };

    pub(super) fn is_watched(self) -> bool {
        self.role != Role::Unwatched
    }
}

/// What a word means for one more call.
enum Verdict {
    Go(Role),
    /// If the word can be changed to this.
    Probe(Word),
    /// For so many milliseconds.
    Shut(u64),
    /// The pause of this era has not begun yet.
    NoPause,
}

/// How a probe ended.
#[derive(Clone, Copy)]
enum Answer {
    Good,
    Bad,
    None,
}

impl Breaker {
    pub(super) fn new(options: Option<BreakerOptions>) -> Self {
        let state = if options.is_some() { State::Closed } else { State::Off };
        Breaker {
            word: Padded(AtomicU64::new(Word::first(state).0)),
            pause: Pause::new(),
            window: Window::new(),
            settings: Settings::new(&options.unwrap_or_default().rules()),
            openings: AtomicU64::new(0),
        }
    }

    /// Returns what it does at the moment.
    pub fn state(&self) -> BreakerState {
        let word = self.load();
        match (word.order(), word.state()) {
            (Order::Open, _) => BreakerState::ForcedOpen,
            (Order::Closed, _) => BreakerState::ForcedClosed,
            (Order::None, State::Closed | State::Off) => BreakerState::Closed,
            (Order::None, State::Open) => BreakerState::Open,
            (Order::None, State::HalfOpen) => BreakerState::HalfOpen,
        }
    }

    /// Returns how often it has opened because of failures or slow calls.
    pub fn openings(&self) -> u64 {
        self.openings.load(Relaxed)
    }

    /// Changes the settings; `None` for no breaker. It starts anew, closed; an operator's order stays.
    pub fn configure(&self, options: Option<BreakerOptions>) {
        if let Some(options) = options {
            self.settings.store(&options.rules());
        }
        let state = if options.is_some() { State::Closed } else { State::Off };
        self.change_to(|word| Some(word.next(state)));
    }

    /// Refuses all calls until [released](Self::release).
    pub fn force_open(&self) {
        self.change_to(|word| Some(word.ordered(word.state(), Order::Open)));
    }

    /// Lets all calls through, and ignores their results, until [released](Self::release).
    pub fn force_closed(&self) {
        self.change_to(|word| Some(word.ordered(word.state(), Order::Closed)));
    }

    /// Ends an order: it starts anew, closed. Without an order, changes nothing.
    pub fn release(&self) {
        self.change_to(|word| {
            let state = if word.state() == State::Off { State::Off } else { State::Closed };
            (word.order() != Order::None).then(|| word.ordered(state, Order::None))
        });
    }

    fn load(&self) -> Word {
        // ORDERING (G3): Acquire: settings and pause read next are no older than this word.
        Word(self.word.load(Acquire))
    }

    fn change(&self, from: Word, to: Word) -> bool {
        // ORDERING (G3): Release for the loads of `load`; Acquire, because changes follow one another:
        // what was published with an earlier word stays so.
        self.word.compare_exchange(from.0, to.0, AcqRel, Relaxed).is_ok()
    }

    /// Applies a change to whatever the word is by then; returns the new word.
    fn change_to(&self, next: impl Fn(Word) -> Option<Word>) -> Option<Word> {
        loop {
            let word = self.load();
            let next = next(word)?;
            if self.change(word, next) {
                return Some(next);
            }
        }
    }

    fn judge(&self, word: Word, now: u64) -> Verdict {
        match (word.order(), word.state()) {
            (Order::Open, _) => return Verdict::Shut(self.settings.pause()),
            (Order::Closed, _) | (_, State::Off) => return Verdict::Go(Role::Unwatched),
            (_, State::Closed) => return Verdict::Go(Role::Call),
            (_, State::HalfOpen) if word.probes() + word.answered() < self.settings.probes() => {
                return Verdict::Probe(word.with_probes(word.probes() + 1));
            }
            (_, State::Open | State::HalfOpen) => {}
        }
        match self.pause.left(word.era(), now) {
            None => Verdict::NoPause,
            // Open, and the pause is over; or no probe has answered for a whole pause.
            Some(0) => {
                let next = word.next(State::HalfOpen).with_probes(1);
                Verdict::Probe(next.with_answered(word.answered()))
            }
            Some(left) => Verdict::Shut(left),
        }
    }

    /// Returns for how many milliseconds a call would be refused. Only looks.
    pub(super) fn look(&self, now: u64) -> Result<(), u64> {
        match self.judge(self.load(), now) {
            Verdict::Shut(left) => Err(left),
            Verdict::Go(_) | Verdict::Probe(_) | Verdict::NoPause => Ok(()),
        }
    }

    /// Lets a call through, or returns for how many milliseconds it is shut.
    pub(super) fn enter(&self, now: u64) -> Result<Pass, u64> {
        loop {
            let word = self.load();
            match self.judge(word, now) {
                Verdict::Go(role) => return Ok(Pass { era: word.era(), role }),
                Verdict::Shut(left) => return Err(left),
                Verdict::NoPause => self.begin_pause(word, now),
                Verdict::Probe(next) => {
                    if self.start_probe(word, next, now) {
                        return Ok(Pass { era: next.era(), role: Role::Probe });
                    }
                }
            }
        }
    }

    /// Whether a pass is still of the present era.
    pub(super) fn is_current(&self, pass: Pass) -> bool {
        self.lasts(pass.era)
    }

    fn lasts(&self, era: u32) -> bool {
        self.load().era() == era
    }

    fn start_probe(&self, word: Word, next: Word, now: u64) -> bool {
        if next.era() == word.era() {
            // Before the CAS: who sees this probe sees that it is given time to answer.
            let pause = self.settings.pause();
            self.pause.extend(word.era(), now, pause, || self.lasts(word.era()));
        }
        if !self.change(word, next) {
            return false;
        }
        self.begin_pause(next, now);
        true
    }

    /// Begins the pause of a word's era, unless it has begun.
    fn begin_pause(&self, word: Word, now: u64) {
        let pause = self.length_of_pause(word.state());
        self.pause.begin(word.era(), now, pause, || self.lasts(word.era()));
    }

    fn length_of_pause(&self, state: State) -> u64 {
        let rules = self.settings.load();
        let jitter = match state {
            State::Open if rules.pause_jitter > 0 => {
                let most = rules.pause as f64 * (rules.pause_jitter as f64 / MILLION as f64);
                (most * rand::random::<f64>()) as u64
            }
            _ => 0,
        };
        rules.pause.saturating_sub(jitter).max(1)
    }

    fn opened(&self, word: Word, now: u64) {
        self.openings.fetch_add(1, Relaxed);
        // Another caller may have begun the pause already, but may have read the clock long before.
        let pause = self.length_of_pause(word.state());
        self.pause.extend(word.era(), now, pause, || self.lasts(word.era()));
    }

    /// A call has ended.
    pub(super) fn ended(&self, pass: Pass, result: Classified, took: u64, now: u64) {
        let rules = self.settings.load();
        let slow = rules.is_slow(took);
        let call = |failed| Totals { calls: 1, failed, slow: u64::from(slow) };
        match (pass.role, result) {
            (Role::Unwatched, _) | (Role::Call, Classified::Ignored) => {}
            (Role::Call, Classified::Success) => {
                self.clear_failures(pass.era);
                self.record(pass.era, &rules, call(0), now);
            }
            (Role::Call, Classified::Failure) => {
                self.count_failure(pass.era, now);
                self.record(pass.era, &rules, call(1), now);
            }
            (Role::Probe, Classified::Ignored) => self.answer(pass.era, Answer::None, now),
            (Role::Probe, Classified::Success) if !slow => {
                self.answer(pass.era, Answer::Good, now);
            }
            (Role::Probe, _) => self.answer(pass.era, Answer::Bad, now),
        }
    }

    /// A call was given up, or did not come to start: nothing is known of the origin.
    pub(super) fn leave(&self, pass: Pass) {
        if pass.role == Role::Probe {
            self.answer(pass.era, Answer::None, 0);
        }
    }

    fn answer(&self, era: u32, answer: Answer, now: u64) {
        let quota = self.settings.probes();
        let next = self.change_to(|word| {
            if word.era() != era {
                return None;
            }
            let left = word.with_probes(word.probes().saturating_sub(1));
            Some(match answer {
                Answer::None => left,
                Answer::Bad => word.next(State::Open),
                Answer::Good if word.answered() + 1 >= quota => word.next(State::Closed),
                Answer::Good => left.with_answered(word.answered() + 1),
            })
        });
        if let (Some(next), Answer::Bad) = (next, answer) {
            self.opened(next, now);
        }
    }

    fn clear_failures(&self, era: u32) {
        self.change_to(|word| {
            (word.era() == era && word.failures() > 0).then(|| word.with_failures(0))
        });
    }

    fn count_failure(&self, era: u32, now: u64) {
        let next = self.change_to(|word| {
            let threshold = self.settings.consecutive();
            if word.era() != era || threshold == 0 {
                return None;
            }
            let failures = word.failures() + 1;
            let reached = failures >= threshold;
            Some(if reached { word.next(State::Open) } else { word.with_failures(failures) })
        });
        if let Some(next) = next.filter(|next| next.state() == State::Open) {
            self.opened(next, now);
        }
    }

    /// Counts a call in the window, and opens if a rate is reached with it.
    fn record(&self, era: u32, rules: &Rules, call: Totals, now: u64) {
        if !rules.watches_rates() {
            return;
        }
        let totals = self.window.record(era, rules.half, call, || self.lasts(era));
        if totals.is_some_and(|totals| rules.is_reached(totals)) {
            let next = self.change_to(|word| (word.era() == era).then(|| word.next(State::Open)));
            if let Some(next) = next {
                self.opened(next, now);
            }
        }
    }
}

impl fmt::Debug for Breaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Breaker")
            .field("state", &self.state())
            .field("openings", &self.openings())
            .finish_non_exhaustive()
    }
}
