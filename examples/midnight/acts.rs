//! The script of each act: what is asked for, and what happens meanwhile.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::clients::{Kind, Request};
use crate::record::Act;
use crate::sizes::{LEAD_IN, MISSING_SHARE, OLD_SHARE, SERVICE, Sizes};

/// Something that happens to the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// All articles are updated.
    Publish,
    OriginHangs,
    OriginErrs,
    OriginRecovers,
    CacheLost,
    /// Only the clients' schedule changes.
    FloodBegins,
    HangUpsBegin,
}

impl Event {
    pub fn name(self) -> &'static str {
        match self {
            Event::Publish => "midnight",
            Event::OriginHangs => "origin hangs",
            Event::OriginErrs => "origin errs",
            Event::OriginRecovers => "origin recovers",
            Event::CacheLost => "cache lost",
            Event::FloodBegins => "flood begins",
            Event::HangUpsBegin => "hang-ups begin",
        }
    }
}

impl Act {
    pub const ALL: [Act; 6] =
        [Act::Steady, Act::Midnight, Act::Outage, Act::Flood, Act::Loss, Act::HangUp];

    pub fn name(self) -> &'static str {
        match self {
            Act::Steady => "steady",
            Act::Midnight => "midnight",
            Act::Outage => "outage",
            Act::Flood => "flood",
            Act::Loss => "loss",
            Act::HangUp => "hang-up",
        }
    }

    /// Its events and its end, in milliseconds from its start at full length.
    fn timetable(self) -> (&'static [(u64, Event)], u64) {
        match self {
            Act::Steady => (&[], 1_000),
            Act::Midnight => (&[(200, Event::Publish)], 1_700),
            Act::Outage => (
                &[
                    (200, Event::OriginHangs),
                    (1_100, Event::OriginErrs),
                    (1_900, Event::OriginRecovers),
                ],
                3_000,
            ),
            Act::Flood => (&[(200, Event::FloodBegins)], 1_400),
            Act::Loss => (&[(200, Event::CacheLost)], 1_700),
            Act::HangUp => (&[(100, Event::HangUpsBegin)], 1_100),
        }
    }

    pub fn length(self, sizes: &Sizes) -> Duration {
        Duration::from_millis(self.timetable().1).mul_f64(sizes.length)
    }

    pub fn events(self, sizes: &Sizes) -> Vec<(Duration, Event)> {
        let scaled = |ms| Duration::from_millis(ms).mul_f64(sizes.length);
        self.timetable().0.iter().map(|&(ms, event)| (scaled(ms), event)).collect()
    }

    /// The requests of lead-in and act, in order of time: the same for every setting.
    pub fn schedule(self, sizes: &Sizes) -> Vec<Request> {
        let mut random = SmallRng::seed_from_u64(2_400);
        let end = LEAD_IN + self.length(sizes);
        let mut requests = readers(sizes, end, &mut random);
        let begin = self.events(sizes).first().map_or(LEAD_IN, |(at, _)| LEAD_IN + *at);
        match self {
            Act::Flood => flood(sizes, begin, end, &mut random, &mut requests),
            Act::HangUp => hang_ups(sizes, begin, end, &mut requests),
            _ => {}
        }
        requests.sort_by_key(|request| request.due);
        requests
    }
}

/// Articles from here on do not exist.
const MISSING: u64 = 1 << 40;

/// Moments at random, independent of one another, so many a second.
fn arrivals(rate: f64, from: Duration, to: Duration, random: &mut SmallRng) -> Vec<Duration> {
    let mut at = from;
    let next = || {
        at += Duration::from_secs_f64(-(1.0 - random.random::<f64>()).ln() / rate);
        (at < to).then_some(at)
    };
    std::iter::from_fn(next).collect()
}

/// What every act has: readers of hot articles, few of old ones, few with links that lead nowhere.
fn readers(sizes: &Sizes, end: Duration, random: &mut SmallRng) -> Vec<Request> {
    let popularity = Zipf::new(sizes.hot, 0.9);
    let due = arrivals(sizes.rate, Duration::ZERO, end, random);
    let mut request = |due| {
        let share: f64 = random.random();
        let (article, kind) = if share < MISSING_SHARE {
            (random.random_range(MISSING..2 * MISSING), Kind::Missing)
        } else if share < MISSING_SHARE + OLD_SHARE {
            // The first half: the other is for `hang_ups`.
            (random.random_range(sizes.hot..first_unread(sizes)), Kind::Existing)
        } else {
            (popularity.draw(random.random()), Kind::Existing)
        };
        Request { due, article, kind }
    };
    due.into_iter().map(&mut request).collect()
}

/// The first of the old articles that nobody reads.
fn first_unread(sizes: &Sizes) -> u64 {
    sizes.hot.midpoint(sizes.articles)
}

/// Half as many requests again, for articles that do not exist: four of five are new, the others the same few.
fn flood(
    sizes: &Sizes,
    begin: Duration,
    end: Duration,
    random: &mut SmallRng,
    requests: &mut Vec<Request>,
) {
    for due in arrivals(sizes.rate / 2.0, begin, end, random) {
        let same = random.random_bool(0.2);
        let many = if same { 50 } else { MISSING };
        let article = MISSING + random.random_range(0..many);
        requests.push(Request { due, article, kind: Kind::Missing });
    }
}

/// Again and again an old article is asked for by many at a time, most of whom leave one after the other, each
/// before a load can have ended that begins when the one before leaves. Three are patient.
fn hang_ups(sizes: &Sizes, begin: Duration, end: Duration, requests: &mut Vec<Request>) {
    const LEAVING: u32 = 6;
    // At one load for each time, so little that the origin bears it well.
    let period = SERVICE.mul_f64(32.0 / sizes.limit as f64);
    let between = SERVICE.mul_f64(0.4);
    let soon = Duration::from_micros(500);
    let mut begin = begin;
    let mut article = first_unread(sizes);
    while begin + period < end {
        for number in 0..LEAVING {
            let kind = Kind::HangsUp(between * (number + 1));
            requests.push(Request { due: begin + soon * number, article, kind });
        }
        for number in LEAVING..LEAVING + 3 {
            requests.push(Request { due: begin + soon * number, article, kind: Kind::Existing });
        }
        begin += period;
        article += 1;
    }
}

/// Numbers of which the k-th is drawn in proportion to `1 / k^s`.
struct Zipf {
    /// The sums of the shares up to each number.
    sums: Vec<f64>,
}

impl Zipf {
    fn new(numbers: u64, s: f64) -> Self {
        let mut sum = 0.0;
        let mut add = |k: u64| {
            sum += (k as f64).powf(-s);
            sum
        };
        Zipf { sums: (1..=numbers).map(&mut add).collect() }
    }

    /// The number, from 0, for a draw from 0 to 1.
    fn draw(&self, draw: f64) -> u64 {
        let sought = draw * self.sums.last().copied().unwrap_or(0.0);
        self.sums.partition_point(|sum| *sum <= sought) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes() -> Sizes {
        Sizes::new(3_000.0, 100, 1.0)
    }

    #[test]
    fn schedules_are_in_order_and_the_same_each_time() {
        for act in Act::ALL {
            let schedule = act.schedule(&sizes());
            assert_eq!(schedule, act.schedule(&sizes()));
            assert!(schedule.is_sorted_by_key(|request| request.due));
            let end = LEAD_IN + act.length(&sizes());
            assert!(schedule.iter().all(|request| request.due < end));
            let seconds = end.as_secs_f64();
            assert!(schedule.len() as f64 > 0.9 * seconds * sizes().rate);
        }
    }

    #[test]
    fn what_exists_is_asked_for_as_such() {
        for act in Act::ALL {
            for request in act.schedule(&sizes()) {
                let exists = request.article < sizes().articles;
                assert_eq!(exists, request.kind != Kind::Missing);
            }
        }
    }

    #[test]
    fn zipf_draws_the_first_most() {
        let zipf = Zipf::new(100, 1.0);
        assert_eq!((zipf.draw(0.0), zipf.draw(0.999_999)), (0, 99));
        let harmonic: f64 = (1..=100).map(|k| 1.0 / f64::from(k)).sum();
        assert_eq!(zipf.draw(0.99 / harmonic), 0);
        assert_eq!(zipf.draw(1.01 / harmonic), 1);
    }
}
