//! Time: a monotonic clock in milliseconds, the system's or one that a test moves by hand.

mod system;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use futures_timer::Delay;

pub(crate) use self::system::Start;
use self::system::SystemClock;
use crate::sync::{AcqRel, Acquire, AtomicU64, Relaxed, Release};

/// Where a cache takes its time from.
///
/// A cache reads its clock only where a deadline needs it: entries without deadlines never do.
/// Deadlines are kept in whole milliseconds, rounded so that they fall due early by up to one
/// millisecond and never late.
///
/// ```
/// use std::time::Duration;
/// use seawall::{Cache, Clock};
///
/// let (clock, hand) = Clock::manual();
/// let cache: Cache<&str, u32> =
///     Cache::builder().max_entries(10).time_to_live(Duration::from_secs(60)).clock(clock).build()?;
/// let _ = cache.insert("a", 1);
/// hand.advance(Duration::from_secs(59));
/// assert_eq!(cache.get("a"), Some(1));
/// hand.advance(Duration::from_secs(1));
/// assert_eq!(cache.get("a"), None);
/// # Ok::<(), seawall::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct Clock(Source);

#[derive(Clone)]
enum Source {
    System(SystemClock),
    Coarse(SystemClock),
    Manual(ManualClock),
    Function(Arc<dyn Fn() -> Duration + Send + Sync>),
}

impl Clock {
    /// Returns the default clock, the operating system's monotonic clock. It does not count the time that the
    /// machine is suspended.
    ///
    /// On Linux most lookups make do with the time of the kernel's last tick (1 to 10 milliseconds ago),
    /// which can be read without waiting for the processor's counter: those of entries that have more than a
    /// second left. So deadlines are as exact as the clock, as long as the kernel does not miss its ticks for a
    /// second; ages that are told may be a tick short, and times left a tick long.
    pub fn system() -> Self {
        Clock(Source::System(SystemClock::new()))
    }

    /// Returns the operating system's coarse monotonic clock where there is one (Linux), else the default
    /// clock. It moves in steps of one tick of the kernel (1 to 10 milliseconds): deadlines fall due up to a
    /// tick late.
    pub fn coarse() -> Self {
        Clock(Source::Coarse(SystemClock::new()))
    }

    /// Returns a clock that stands still, and the hand that moves it; for tests.
    pub fn manual() -> (Self, ManualClock) {
        let hand = ManualClock { hand: Arc::default() };
        (Clock(Source::Manual(hand.clone())), hand)
    }

    /// Returns a clock that asks `now` for the time since a fixed moment of its choice.
    ///
    /// `now` should not go backwards; where it does, no time is taken to have passed. It is called
    /// while the cache is in the middle of an operation: it must not call the cache.
    pub fn from_fn(now: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Clock(Source::Function(Arc::new(now)))
    }

    #[inline]
    pub(crate) fn millis(&self) -> u64 {
        match &self.0 {
            Source::System(clock) => clock.millis(),
            Source::Coarse(clock) => clock.coarse_millis(),
            Source::Manual(hand) => hand.millis(),
            Source::Function(now) => millis(now()),
        }
    }

    /// As [`Self::millis`], and cheaper where it may be up to [`SLACK`] less.
    #[inline]
    pub(crate) fn about_millis(&self) -> u64 {
        match &self.0 {
            Source::System(clock) | Source::Coarse(clock) => clock.coarse_millis(),
            Source::Manual(_) | Source::Function(_) => self.millis(),
        }
    }
}

impl Clock {
    /// The time, and that of the system's clock for a measurement: in one reading if they are the same.
    pub(crate) fn millis_and_start(&self) -> (u64, Start) {
        let start = Start::now();
        match &self.0 {
            Source::System(clock) => (clock.millis_at(start), start),
            _ => (self.millis(), start),
        }
    }

    /// How long it is until a moment, if this clock moves with real time.
    pub(crate) fn until(&self, at: u64) -> Option<Duration> {
        match &self.0 {
            Source::Manual(_) => None,
            _ if at == u64::MAX => Some(Duration::MAX),
            _ => Some(Duration::from_millis(at.saturating_sub(self.millis()))),
        }
    }

    /// An alarm for a moment; `u64::MAX` never comes.
    pub(crate) fn alarm(&self, at: u64) -> Alarm {
        let set = || Box::new(Set { clock: self.clone(), at, armed: None });
        Alarm((at != u64::MAX).then(set))
    }
}

/// Wakes a task when a moment has come, or never. Small: every waiting task has one.
#[derive(Debug)]
pub(crate) struct Alarm(Option<Box<Set>>);

/// An alarm that will come.
#[derive(Debug)]
struct Set {
    clock: Clock,
    at: u64,
    armed: Option<Armed>,
}

#[derive(Debug)]
enum Armed {
    Real(Delay),
    /// The number of the sleeper.
    Manual(u64),
}

impl Alarm {
    /// One that never comes.
    pub(crate) fn never() -> Alarm {
        Alarm(None)
    }

    /// Whether the moment has come. If not, the task is woken when it has.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        self.0.as_mut().is_some_and(|set| set.poll(cx))
    }
}

impl Set {
    fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        loop {
            let left = Duration::from_millis(self.at.saturating_sub(self.clock.millis()));
            if left.is_zero() {
                return true;
            }
            if let Source::Manual(hand) = &self.clock.0 {
                let known = match self.armed {
                    Some(Armed::Manual(number)) => Some(number),
                    _ => None,
                };
                self.armed = Some(Armed::Manual(hand.sleep(known, self.at, cx.waker())));
                return hand.millis() >= self.at;
            }
            if let Some(Armed::Real(delay)) = &mut self.armed {
                if Pin::new(delay).poll(cx).is_pending() {
                    return false;
                }
            }
            // Not yet armed, or the timer's clock is ahead of ours.
            self.armed = Some(Armed::Real(Delay::new(left)));
        }
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        if let (Some(Armed::Manual(number)), Source::Manual(hand)) = (&self.armed, &self.clock.0) {
            let gone: Vec<Sleeper> = {
                let mut sleepers = hand.lock();
                let (gone, rest) = std::mem::take(&mut *sleepers)
                    .into_iter()
                    .partition(|sleeper| sleeper.number == *number);
                *sleepers = rest;
                gone
            };
            // A waker's destructor is the executor's: not under the lock.
            drop(gone);
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Source::System(_) => "Clock::system",
            Source::Coarse(_) => "Clock::coarse",
            Source::Manual(_) => "Clock::manual",
            Source::Function(_) => "Clock::from_fn",
        })
    }
}

/// Moves a [`Clock::manual`]; clones move the same clock.
///
/// Those who wait for a deadline on this clock are woken as it is moved past.
#[derive(Clone, Debug)]
pub struct ManualClock {
    hand: Arc<Hand>,
}

#[derive(Debug, Default)]
struct Hand {
    millis: AtomicU64,
    sleepers: Mutex<Vec<Sleeper>>,
    numbers: AtomicU64,
}

#[derive(Debug)]
struct Sleeper {
    number: u64,
    at: u64,
    waker: Waker,
}

impl ManualClock {
    /// Moves the clock on by a duration, of which whole milliseconds count.
    pub fn advance(&self, by: Duration) {
        let mut now = self.millis();
        loop {
            let then = now.saturating_add(millis(by));
            // ORDERING: as in `move_to`.
            match self.hand.millis.compare_exchange(now, then, AcqRel, Acquire) {
                Ok(_) => return self.wake_due(then),
                Err(other) => now = other,
            }
        }
    }

    /// Sets the time since the clock was made, also to an earlier one.
    pub fn set(&self, since_start: Duration) {
        self.move_to(millis(since_start));
    }

    /// Returns the time since the clock was made.
    pub fn now(&self) -> Duration {
        Duration::from_millis(self.millis())
    }

    /// Returns how many wait for a deadline on this clock: blocked threads and pending tasks.
    pub fn sleepers(&self) -> usize {
        self.lock().len()
    }

    fn millis(&self) -> u64 {
        // ORDERING: Acquire pairs with the Release in `move_to`: who sees the new time sees what was
        // done before the clock was moved, as a test expects.
        self.hand.millis.load(Acquire)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Sleeper>> {
        self.hand.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn move_to(&self, now: u64) {
        self.hand.millis.store(now, Release);
        self.wake_due(now);
    }

    fn wake_due(&self, now: u64) {
        let due: Vec<Sleeper> = {
            let mut sleepers = self.lock();
            let (due, later) =
                std::mem::take(&mut *sleepers).into_iter().partition(|it| it.at <= now);
            *sleepers = later;
            due
        };
        due.into_iter().for_each(|sleeper| sleeper.waker.wake());
    }

    /// Notes whom to wake; returns the sleeper's number.
    fn sleep(&self, known: Option<u64>, at: u64, waker: &Waker) -> u64 {
        let number = known.unwrap_or_else(|| self.hand.numbers.fetch_add(1, Relaxed));
        let new = waker.clone();
        let old = {
            let mut sleepers = self.lock();
            match sleepers.iter_mut().find(|sleeper| sleeper.number == number) {
                Some(sleeper) => Some(std::mem::replace(&mut sleeper.waker, new)),
                None => {
                    sleepers.push(Sleeper { number, at, waker: new });
                    None
                }
            }
        };
        drop(old);
        number
    }
}

/// Whole milliseconds, saturating.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// How far, in milliseconds, [`Clock::about_millis`] is taken to be behind at most: a hundred ticks and more,
/// since a virtual machine's kernel may miss some.
pub(crate) const SLACK: u64 = 1_000;

#[cfg(all(test, not(seawall_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_clocks_of_the_system_go_forward() {
        for clock in [Clock::system(), Clock::coarse()] {
            let start = clock.millis();
            while clock.millis() < start + 20 {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn the_cheap_time_is_not_ahead_and_not_far_behind() {
        let clock = Clock::system();
        for _ in 0..1_000 {
            let (before, about) = (clock.millis(), clock.about_millis());
            let now = clock.millis();
            assert!(about <= now && before <= about + SLACK, "{before}, about {about}, {now}");
        }
    }

    #[test]
    fn one_reading_tells_the_time_and_measures() {
        let (by_hand, hand) = Clock::manual();
        hand.advance(Duration::from_millis(7));
        assert_eq!(by_hand.millis_and_start().0, 7);
        let clock = Clock::system();
        while clock.millis() < 3 {}
        let before = clock.millis();
        let (now, start) = clock.millis_and_start();
        while clock.millis() < now + 3 {}
        let elapsed = start.elapsed();
        let after = clock.millis();
        assert!(before <= now && now < after, "{before}, {now}, {after}");
        // The time is in whole milliseconds.
        let told = Duration::from_millis(after - now);
        assert!(elapsed > Duration::from_millis(2), "{elapsed:?}");
        assert!(elapsed < told + Duration::from_millis(1), "{elapsed:?}, {told:?}");
    }

    #[test]
    fn a_clock_of_the_users_is_asked_each_time() {
        let clock = Clock::from_fn(|| Duration::from_millis(7));
        assert_eq!(clock.millis(), 7);
    }
}
