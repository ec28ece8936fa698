//! The breaker's word: everything that decides whether a call may go, changed by one CAS.
//!
//! ```text
//! 63..36 era   35..20 failures in a row   19..12 probes answered   11..4 probes out   3..2 order   1..0 state
//! ```
//!
//! The *era* is raised by every change of state, order or settings. A call carries the era it was
//! admitted in; its result counts only while that era lasts.

use std::fmt;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Word(pub(super) u64);

/// What the results of calls have led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Closed,
    Open,
    HalfOpen,
    /// No breaker is configured.
    Off,
}

/// What an operator has ordered; holds until released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    None,
    Open,
    Closed,
}

const ORDER: u32 = 2;
const PROBES: u32 = 4;
const ANSWERED: u32 = 12;
const FAILURES: u32 = 20;
const ERA: u32 = 36;

/// Fields as wide as these count no further.
pub(super) const MOST_PROBES: u32 = 0xff;
pub(super) const MOST_FAILURES: u32 = 0xffff;

impl Word {
    /// The first word of an era; no probes, no failures.
    fn new(era: u32, state: State, order: Order) -> Word {
        let order = u64::from(order as u8) << ORDER;
        Word(u64::from(era) << ERA | order | u64::from(state as u8))
    }

    pub(super) fn first(state: State) -> Word {
        Word::new(0, state, Order::None)
    }

    /// The next era, in this state.
    pub(super) fn next(self, state: State) -> Word {
        self.ordered(state, self.order())
    }

    /// The next era, in this state, under this order.
    pub(super) fn ordered(self, state: State, order: Order) -> Word {
        let era = (self.era() + 1) & (u32::MAX >> (ERA - 32));
        Word::new(era, state, order)
    }

    pub(super) fn era(self) -> u32 {
        (self.0 >> ERA) as u32
    }

    pub(super) fn state(self) -> State {
        match self.0 & 3 {
            0 => State::Closed,
            1 => State::Open,
            2 => State::HalfOpen,
            _ => State::Off,
        }
    }

    pub(super) fn order(self) -> Order {
        match self.0 >> ORDER & 3 {
            0 => Order::None,
            1 => Order::Open,
            _ => Order::Closed,
        }
    }

    fn field(self, shift: u32, most: u32) -> u32 {
        (self.0 >> shift) as u32 & most
    }

    fn with(self, shift: u32, most: u32, value: u32) -> Word {
        let cleared = self.0 & !(u64::from(most) << shift);
        Word(cleared | u64::from(value.min(most)) << shift)
    }

    /// Probes that have not answered yet.
    pub(super) fn probes(self) -> u32 {
        self.field(PROBES, MOST_PROBES)
    }

    pub(super) fn with_probes(self, probes: u32) -> Word {
        self.with(PROBES, MOST_PROBES, probes)
    }

    /// Probes that succeeded.
    pub(super) fn answered(self) -> u32 {
        self.field(ANSWERED, MOST_PROBES)
    }

    pub(super) fn with_answered(self, answered: u32) -> Word {
        self.with(ANSWERED, MOST_PROBES, answered)
    }

    /// Failures in a row while closed.
    pub(super) fn failures(self) -> u32 {
        self.field(FAILURES, MOST_FAILURES)
    }

    pub(super) fn with_failures(self, failures: u32) -> Word {
        self.with(FAILURES, MOST_FAILURES, failures)
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Word")
            .field("era", &self.era())
            .field("state", &self.state())
            .field("order", &self.order())
            .field("failures", &self.failures())
            .field("answered", &self.answered())
            .field("probes", &self.probes())
            .finish()
    }
}
