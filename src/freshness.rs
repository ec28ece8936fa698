//! Deadlines: what an entry's state word says about its age, and what that means now.
//!
//! Times are milliseconds on the cache's own scale: its clock shifted by [`ORIGIN`], so that a value
//! may be older than the cache. [`NEVER`] is never reached.
//!
//! The common entry keeps all of it in one word of eight bytes, next to its key and value:
//!
//! ```text
//! with deadlines     63..26 birth   25..17 generation   16..11 draw   10..4 profile   3..0 flags
//! without            63..37 zero    36..11 generation                 10..4 zero      3..0 flags
//! ```
//!
//! A *profile* is a row of durations that many entries share; the *draw* is the entry's random number
//! for jitter and early refresh; the *generation* says which `invalidate_all` the entry has outlived.
//! What does not fit is spelled out as [`Deadlines`] in the entry's extra block.

use crate::sync::{AcqRel, Acquire, AtomicU64, AtomicUsize, Relaxed, Release};

/// What the clock's zero is on the cache's scale: far from both ends.
pub(crate) const ORIGIN: u64 = 1 << 62;

/// The first moment that fits into a state word: about 2.2 years before the clock's zero.
const BASE: u64 = ORIGIN - (1 << 36);

/// A deadline that is never reached.
pub(crate) const NEVER: u64 = u64::MAX;

/// The durations of an entry, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Durations {
    /// From birth to the soft deadline.
    pub(crate) fresh: u64,
    /// From the soft deadline on: stale values are served while one refresh runs.
    pub(crate) revalidate: u64,
    /// From the soft deadline on: stale values are served if a load fails.
    pub(crate) on_error: u64,
    /// What the jitter takes away from `fresh` for each unit of the draw.
    pub(crate) jitter: u64,
    /// The mean of the time before the soft deadline at which a refresh is due already.
    pub(crate) early: u64,
}

impl Durations {
    /// With a jitter of a fraction of `fresh`, and no early refresh before the value is made.
    pub(crate) fn with_jitter(self, fraction: f64) -> Durations {
        if self.is_unlimited() {
            return Durations { jitter: 0, early: 0, ..self };
        }
        let most = u64::from(DRAWS - 1);
        let jitter = (self.fresh as f64 * fraction / most as f64) as u64;
        let jitter = jitter.min(self.fresh / most);
        Durations { jitter, early: self.early.min(self.fresh), ..self }
    }

    pub(crate) fn is_unlimited(&self) -> bool {
        self.fresh == NEVER
    }

    /// When freshness ends. Read with every hit: no division.
    #[inline]
    fn soft(&self, birth: u64, draw: u8) -> u64 {
        birth.saturating_add(self.fresh - self.jitter * u64::from(draw))
    }

    pub(crate) fn from(self, birth: u64, draw: u8) -> Deadlines {
        let soft = self.soft(birth, draw);
        let early =
            if self.early == 0 { 0 } else { (self.early as f64 * exponential(draw)) as u64 };
        Deadlines {
            birth,
            refresh: soft.saturating_sub(early).max(birth),
            soft,
            revalidate: soft.saturating_add(self.revalidate),
            on_error: soft.saturating_add(self.on_error),
        }
    }
}

/// When an entry changes its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadlines {
    /// When its value was made; [`NEVER`] if that was not noted.
    pub(crate) birth: u64,
    /// From here on an early refresh is due.
    pub(crate) refresh: u64,
    /// Fresh until here.
    pub(crate) soft: u64,
    /// Stale, and served, until here.
    pub(crate) revalidate: u64,
    /// Stale, and served in place of an error, until here.
    pub(crate) on_error: u64,
}

/// The state of an entry at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    Fresh,
    Stale,
    StaleOnError,
    Dead,
}

impl Deadlines {
    pub(crate) const NONE: Deadlines =
        Deadlines { birth: NEVER, refresh: NEVER, soft: NEVER, revalidate: NEVER, on_error: NEVER };

    pub(crate) fn at(&self, now: u64) -> Freshness {
        if now < self.soft || self.soft == NEVER {
            Freshness::Fresh
        } else if now < self.revalidate {
            Freshness::Stale
        } else if now < self.on_error {
            Freshness::StaleOnError
        } else {
            Freshness::Dead
        }
    }

    /// The end of freshness moved to `now`, the windows with it. Never moves a deadline out.
    pub(crate) fn stale_from(self, now: u64, default: Durations) -> Deadlines {
        if self.soft <= now {
            return self;
        }
        let (revalidate, on_error) = if self.soft == NEVER {
            (default.revalidate, default.on_error)
        } else {
            (self.revalidate - self.soft, self.on_error - self.soft)
        };
        Deadlines {
            birth: self.birth,
            refresh: now.min(self.refresh),
            soft: now,
            revalidate: now.saturating_add(revalidate).min(self.revalidate),
            on_error: now.saturating_add(on_error).min(self.on_error),
        }
    }
}

/// How many values a draw has.
pub(crate) const DRAWS: u8 = 64;

/// The draw's quantile of the exponential distribution with mean 1. Draws are permuted first, so that
/// a short lifetime by jitter says nothing about an early refresh.
fn exponential(draw: u8) -> f64 {
    let permuted = draw.wrapping_mul(37).wrapping_add(11) % DRAWS;
    -((f64::from(permuted) + 0.5) / f64::from(DRAWS)).ln()
}

/// Flags of a state word, and of an extra block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flags(u8);

impl Flags {
    /// Always set in a word that is not a pointer.
    const INLINE: u64 = 1;
    /// The node has no value.
    pub(crate) const HOLLOW: Flags = Flags(2);
    /// The node has a tail with its weight and the time of its last use.
    pub(crate) const HEAVY: Flags = Flags(8);
    pub(crate) const NONE: Flags = Flags(0);
    const MASK: u64 = 0xE;

    pub(crate) fn hollow(self) -> Flags {
        Flags(self.0 | Self::HOLLOW.0)
    }

    pub(crate) fn is_hollow(self) -> bool {
        self.0 & Self::HOLLOW.0 != 0
    }

    pub(crate) fn is_heavy(self) -> bool {
        self.0 & Self::HEAVY.0 != 0
    }
}

/// A state word that is not a pointer to an extra block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inline(u64);

const PROFILE_SHIFT: u32 = 4;
const DRAW_SHIFT: u32 = 11;
const GENERATION_SHIFT: u32 = 17;
const BIRTH_SHIFT: u32 = 26;
const LONG_GENERATION_SHIFT: u32 = 11;

/// How many profiles a cache can number; 0 stands for "no deadline".
const PROFILES: usize = 128;
/// The first moment that does not fit any more: 6.5 years after the clock's zero.
const END: u64 = BASE + (1 << (64 - BIRTH_SHIFT));

impl Inline {
    /// Returns the word if `addr` is one.
    #[inline]
    pub(crate) fn from_addr(addr: usize) -> Option<Inline> {
        (addr as u64 & Flags::INLINE != 0).then_some(Inline(addr as u64))
    }

    #[inline]
    pub(crate) fn addr(self) -> usize {
        self.0 as usize
    }

    /// A word without deadlines, but for its generation.
    pub(crate) const fn plain(flags: Flags) -> usize {
        (Flags::INLINE | flags.0 as u64) as usize
    }

    pub(crate) fn without_deadlines(flags: Flags, generation: Generation) -> Inline {
        Inline((Self::plain(flags) | generation.in_plain_word()) as u64)
    }

    /// A word that no entry has, whatever its generation.
    pub(crate) const NOBODYS: usize = (Flags::INLINE | 4) as usize;

    /// Some word without deadlines, where only that matters.
    pub(crate) const SOME: Inline = Inline(Flags::INLINE);

    /// `None` if the birth or the profile does not fit.
    pub(crate) fn with_deadlines(
        flags: Flags,
        generation: Generation,
        profile: Profile,
        draw: u8,
        birth: u64,
    ) -> Option<Inline> {
        debug_assert!(draw < DRAWS);
        (birth >= generation.start() && birth < END).then(|| {
            Inline(
                Flags::INLINE
                    | u64::from(flags.0)
                    | (profile.0 as u64) << PROFILE_SHIFT
                    | u64::from(draw) << DRAW_SHIFT
                    | (generation.number() & Generation::SHORT) << GENERATION_SHIFT
                    | (birth - BASE) << BIRTH_SHIFT,
            )
        })
    }

    pub(crate) fn flags(self) -> Flags {
        Flags((self.0 & Flags::MASK) as u8)
    }

    #[inline]
    pub(crate) fn has_deadlines(self) -> bool {
        self.profile() != 0
    }

    fn birth(self) -> u64 {
        BASE + (self.0 >> BIRTH_SHIFT)
    }

    fn profile(self) -> usize {
        (self.0 >> PROFILE_SHIFT) as usize & (PROFILES - 1)
    }

    /// Whether the entry has outlived every `invalidate_all` so far.
    #[inline]
    pub(crate) fn is_of(self, generation: Generation) -> bool {
        if self.has_deadlines() {
            let short = self.0 >> GENERATION_SHIFT & Generation::SHORT;
            short == generation.number() & Generation::SHORT && self.birth() >= generation.start()
        } else {
            self.0 >> LONG_GENERATION_SHIFT == generation.number()
        }
    }

    /// Whether the entry is fresh, from the one deadline that decides it.
    #[inline]
    pub(crate) fn is_fresh_at(self, now: u64, profiles: &Profiles) -> bool {
        let row = &profiles.rows[self.profile()];
        // ORDERING: Relaxed, as in `Profiles::durations`.
        let taken = row.jitter.load(Relaxed) * self.draw();
        self.has_deadlines() && now < self.birth().saturating_add(row.fresh.load(Relaxed) - taken)
    }

    #[inline]
    fn draw(self) -> u64 {
        self.0 >> DRAW_SHIFT & u64::from(DRAWS - 1)
    }

    pub(crate) fn deadlines(self, profiles: &Profiles) -> Deadlines {
        match self.profile() {
            0 => Deadlines::NONE,
            profile => profiles.durations(Profile(profile)).from(self.birth(), self.draw() as u8),
        }
    }
}

/// Which `invalidate_all` an entry has outlived: a number, and the millisecond in which it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(u64);

impl Generation {
    const NUMBER_BITS: u32 = 26;
    /// The part of the number that a word with deadlines has room for.
    const SHORT: u64 = 0x1FF;

    /// The first generation: older than anything.
    pub(crate) const FIRST: Generation = Generation(0);

    pub(crate) fn from_raw(raw: u64) -> Generation {
        Generation(raw)
    }

    pub(crate) fn raw(self) -> u64 {
        self.0
    }

    #[inline]
    pub(crate) fn number(self) -> u64 {
        self.0 & ((1 << Self::NUMBER_BITS) - 1)
    }

    /// Where a word without deadlines has the number.
    #[inline]
    pub(crate) fn in_plain_word(self) -> usize {
        (self.number() << LONG_GENERATION_SHIFT) as usize
    }

    #[inline]
    pub(crate) fn start(self) -> u64 {
        BASE + (self.0 >> Self::NUMBER_BITS)
    }

    /// The next generation, and whether entries of older ones than the present must be swept out before
    /// it begins, lest their words come to be taken for words of a coming one.
    ///
    /// A word without deadlines has the whole number, and is taken for another after 2^26 of them. A
    /// word with deadlines has nine bits of it and the millisecond, and is taken for another after 512
    /// in one millisecond. In half of either there is at least one such sweep.
    pub(crate) fn next(self, now: u64) -> (Generation, bool) {
        let start = self.start().max(now.min(END - 1));
        let number = (self.number() + 1) & ((1 << Self::NUMBER_BITS) - 1);
        let sweep = (number & (Self::SHORT >> 1) == 0 && start == self.start())
            || number & ((1 << (Self::NUMBER_BITS - 1)) - 1) == 0;
        (Generation((start - BASE) << Self::NUMBER_BITS | number), sweep)
    }
}

/// A row of [`Profiles`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Profile(usize);

/// The durations in use, numbered; rows are added and never changed.
#[derive(Debug)]
pub(crate) struct Profiles {
    rows: Box<[Row]>,
    /// Rows claimed so far.
    claimed: AtomicUsize,
}

/// Fields are written by the thread that claimed the row, before it sets `ready`.
#[derive(Debug, Default)]
struct Row {
    ready: AtomicU64,
    fresh: AtomicU64,
    revalidate: AtomicU64,
    on_error: AtomicU64,
    jitter: AtomicU64,
    early: AtomicU64,
}

impl Profiles {
    pub(crate) fn new() -> Self {
        Profiles {
            rows: (0..PROFILES).map(|_| Row::default()).collect(),
            claimed: AtomicUsize::new(1),
        }
    }

    #[inline]
    fn durations(&self, profile: Profile) -> Durations {
        let row = &self.rows[profile.0];
        // ORDERING: Relaxed: the word with this number was published after the row was written, and
        // who has the word has acquired it.
        Durations {
            fresh: row.fresh.load(Relaxed),
            revalidate: row.revalidate.load(Relaxed),
            on_error: row.on_error.load(Relaxed),
            jitter: row.jitter.load(Relaxed),
            early: row.early.load(Relaxed),
        }
    }

    /// Returns the number of a row of durations; `None` if all rows are taken.
    pub(crate) fn number(&self, durations: Durations) -> Option<Profile> {
        // ORDERING (F1): Acquire pairs with the claim: at least these rows may be in use.
        let claimed = self.claimed.load(Acquire).min(PROFILES);
        for index in 1..claimed {
            // ORDERING (F2): Acquire pairs with the Release below: the row's fields.
            if self.rows[index].ready.load(Acquire) == 1
                && self.durations(Profile(index)) == durations
            {
                return Some(Profile(index));
            }
        }
        if claimed == PROFILES {
            return None;
        }
        self.add(durations)
    }

    #[cold]
    fn add(&self, durations: Durations) -> Option<Profile> {
        let mut claimed = self.claimed.load(Acquire);
        while claimed < PROFILES {
            match self.claimed.compare_exchange(claimed, claimed + 1, AcqRel, Acquire) {
                Ok(_) => {
                    // Two threads may add the same durations: a row more, and no harm.
                    let row = &self.rows[claimed];
                    row.fresh.store(durations.fresh, Relaxed);
                    row.revalidate.store(durations.revalidate, Relaxed);
                    row.on_error.store(durations.on_error, Relaxed);
                    row.jitter.store(durations.jitter, Relaxed);
                    row.early.store(durations.early, Relaxed);
                    // ORDERING (F2): Release publishes the fields.
                    row.ready.store(1, Release);
                    return Some(Profile(claimed));
                }
                Err(now) => claimed = now,
            }
        }
        None
    }
}
