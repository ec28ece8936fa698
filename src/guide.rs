//! A guide: the concepts, how to choose the settings, what holds under which failure, tests, metrics.
//!
//! A service that keeps copies of what a slower **origin** says (a database, another service, a disk) lives
//! well as long as most requests hit. It falls over when hits turn into misses all at once: everybody asks the
//! origin, the origin slows down, callers give up and ask again, and what was a slow minute is an outage. This
//! crate is the cache, and what has to stand between it and the origin so that this does not happen.
//!
//! * [Concepts](#concepts)
//! * [A first program](#a-first-program)
//! * [Choosing the settings](#choosing-the-settings)
//! * [Five loads, and what answers them](#five-loads-and-what-answers-them)
//! * [What a caller is told](#what-a-caller-is-told)
//! * [Tests without waiting](#tests-without-waiting)
//! * [Watching it work](#watching-it-work)
//! * [Limits](#limits)
//!
//! # Concepts
//!
//! **An entry** has a state, which depends on its age only:
//!
//! | state | from | plain reads get | get-or-load gets |
//! |---|---|---|---|
//! | fresh | its birth | the value | the value |
//! | stale | the end of [`time_to_live`], until that of [`stale_while_revalidate`] | the value | the value, at once; one refresh begins |
//! | stale on error | then, until that of [`stale_if_error`] | nothing | a load; if that fails, is refused or late: the value |
//! | dead | the end of the longer window | nothing | a load |
//! | absent | a load that found nothing, for [`absent_time_to_live`] | nothing | "there is no such key" |
//!
//! Both windows begin where freshness ends, and no failure lengthens them.
//!
//! **A flight** is a load in progress. Whoever misses a key that has one joins it.
//!
//! | word | meaning |
//! |---|---|
//! | leader | the caller that missed first; its loader asks the origin |
//! | follower | a caller that misses the same key meanwhile, and waits for the same answer |
//! | refresh | a flight for a key whose value is served meanwhile: a follower of it need not wait |
//! | overtaken | what a write or an invalidation makes of a flight: those who wait get its answer, it is not stored, and who comes later loads anew |
//!
//! **A guard** decides at once whether a load may begin. Nothing queues: a caller that may not load gets a
//! stale value if there is one that may be served, else a [`Refusal`].
//!
//! | guard | bounds | setting |
//! |---|---|---|
//! | screen | loads of keys that cannot exist | [`screen`] |
//! | throttle | loads of one key in a time | [`min_retry_interval`], [`backoff`] |
//! | waiters | followers of all flights | [`max_waiters`] |
//! | breaker | loads of an origin that fails or is slow | [`breaker`] |
//! | rate | loads of all keys in a time | [`rate_limit`] |
//! | permits | loads of all keys at once; refreshes may use a share of them | [`max_in_flight`], [`background_share`] |
//!
//! # A first program
//!
//! ```
//! use std::time::Duration;
//! use seawall::{Cache, LoadError};
//!
//! /// Asks the database.
//! fn article(id: &str) -> Result<Option<String>, &'static str> {
//!     Ok((id == "7").then(|| "an article".to_owned()))
//! }
//!
//! let cache: Cache<String, String> = Cache::builder()
//!     .max_entries(10_000)
//!     .time_to_live(Duration::from_secs(60))
//!     .stale_if_error(Duration::from_secs(600))
//!     .absent_time_to_live(Duration::from_secs(5))
//!     .max_in_flight(20)
//!     .build()?;
//!
//! assert_eq!(cache.get_or_load("7", || article("7")).as_deref(), Ok("an article"));
//! assert_eq!(cache.get_or_load("8", || article("8")), Err(LoadError::Absent));
//! assert_eq!(cache.get("7").as_deref(), Some("an article"));
//! # Ok::<(), seawall::ConfigError>(())
//! ```
//!
//! [`get_or_load_async`] is the same for a loader that is a future, on any runtime; [`load`] gives a call its own
//! patience, its loader the previous value, and its caller the whole [`Outcome`].
//!
//! # Choosing the settings
//!
//! Start from what is known of the origin and of the traffic, and from how old an answer may be. An example,
//! with figures for **one process**:
//!
//! | symbol | what | example |
//! |---|---|---|
//! | C | concurrent requests that the origin bears | 100, for 4 processes |
//! | T, T99 | time of an origin's answer: mean, 99th percentile | 40 ms, 200 ms |
//! | R | requests a second | 5,000 |
//! | m | share of them that miss | 0.02 |
//! | H | keys that are asked for again and again | 20,000 |
//! | A | greatest age of an answer, while all is well | 300 s |
//! | E | the same, while the origin is down | 3,600 s |
//! | P | how long a client waits before it gives up | 2 s |
//!
//! **[`max_in_flight`]** = 0.8 C / processes = **20**. The fifth that is left is for what else asks the
//! origin, and for loads that were given up (timed out, or left by all callers without [`detached_loads`]) while the
//! origin works on. By Little's law a rate of loads r keeps r T of them in flight: 0.02 x 5,000/s x 40 ms = 4, so there is
//! room for five times the usual misses. At most 20 / 40 ms = 500 loads a second begin. If what the misses need
//! is more than the origin bears, no setting here helps: cache more, or for longer.
//! *Against:* many keys that miss at once.
//!
//! **[`load_timeout`]** = some times T99 = **1 s**, and not above P. Of an origin that hangs, each permit is
//! held for as long: 20 / 1 s = 20 loads a second are left. An async load is dropped then. A blocking one cannot
//! be: only its followers are let go. So give its client a timeout of the same length, and limit how long it may hold
//! its key ([`lead_timeout`]).
//! *Against:* an origin that hangs.
//!
//! **[`wait_timeout`]** = a little below P = **1.5 s**: nobody is left for whom to answer after that.
//!
//! **[`max_waiters`]** = 2 R T99 = **2,000**. If every request had to wait, R T99 = 1,000 would wait at once.
//! A waiting task costs about a kilobyte; what counts is that callers who would wait in vain get an answer
//! while it is of use to them.
//! *Against:* callers that pile up behind a slow or hanging origin.
//!
//! **[`time_to_live`], [`stale_while_revalidate`], [`jitter`].** The sum of both times, and of a load that is
//! under way when the origin changes, must not exceed A. And the stale window must last until all hot keys have
//! been refreshed, should they all get stale in the same instant:
//!
//! | what | formula | example |
//! |---|---|---|
//! | refreshes at once | [`max_in_flight`] x [`background_share`] | 20 x 0.5 = 10 |
//! | time for all H keys | H T / refreshes at once | 20,000 x 40 ms / 10 = 80 s |
//! | [`stale_while_revalidate`] | a little more than that | **90 s** |
//! | [`time_to_live`] | A - stale window - [`load_timeout`] | 300 s - 90 s - 1 s, rounded down: **200 s** |
//! | refreshes a second, usually | H / [`time_to_live`] | 100; at most 10 / 40 ms = 250 |
//!
//! Until its turn comes, a key is served stale. Misses and refreshes together usually take (100/s + 100/s) x 40 ms = 8
//! of the 20 permits. A jitter of **0.1** keeps what was stored together from expiring together the next time; it
//! only ever shortens a time to live, so A holds all the same. Without a [`spawner`] (async) or [`refresh_with`]
//! (blocking) a caller does each refresh and waits for it; with one, nobody does. [`early_refresh`], with a mean
//! of T, is for keys for which not even a short staleness will do: it loads them a random while before they expire.
//! *Against:* many keys that expire together.
//!
//! **[`stale_if_error`]** = E - [`time_to_live`] - [`load_timeout`] = **3,399 s**.
//! *Against:* outages, up to that long, for all that was asked for lately and is still in the cache.
//!
//! **[`absent_time_to_live`]** = how long a new article may remain unseen = **5 s** (an insert ends an absence at once).
//! Someone who asks for one such key costs one load in that time. Against ever new keys only the
//! [`screen`] helps: of f such requests a second, f x (rate of false positives) reach the origin; 5,000/s x 0.01 =
//! 50/s, or 2 permits.
//! *Against:* keys that do not exist.
//!
//! **[`min_retry_interval`]** = the least time between two loads of a key = **1 s**. It must be no longer than an
//! entry's life, or there would be times when it can be neither served nor loaded; and no shorter than
//! [`load_timeout`], so that behind a load that hangs only its own caller waits where there is a value that may stand
//! in for an error. **[`backoff`]**: from the same, to how long after its recovery the origin may remain unasked
//! for a key that failed = **1 s to 10 s**.
//! *Against:* keys whose loads fail, again and again.
//!
//! **[`breaker`].** If a healthy origin fails once in a hundred calls, five failures in a row happen once in ten
//! billion: **5** say that it is down. While the breaker is open the origin gets no load at all but one probe in
//! [`open_for`] = **5 s**, which is also how long after its recovery it may remain unasked.
//! For an origin that is slow or fails in part: [`slow_call`], [`failure_rate`].
//! *Against:* the last straw on an origin that is down already.
//!
//! **[`rate_limit`]**: only if the origin counts calls in a time, as paid ones do. Permits adapt to how fast it is.
//!
//! ```
//! use std::time::Duration;
//! use seawall::Cache;
//! use seawall::guard::{Backoff, BreakerOptions};
//!
//! let secs = Duration::from_secs;
//! let cache: Cache<u64, String> = Cache::builder()
//!     .max_entries(100_000)
//!     .time_to_live(secs(200))
//!     .jitter(0.1)
//!     .stale_while_revalidate(secs(90))
//!     .stale_if_error(secs(3_399))
//!     .absent_time_to_live(secs(5))
//!     .max_in_flight(20)
//!     .max_waiters(2_000)
//!     .load_timeout(secs(1))
//!     .wait_timeout(Duration::from_millis(1_500))
//!     .min_retry_interval(secs(1))
//!     .backoff(Backoff::new(secs(1), secs(10))?)
//!     .breaker(BreakerOptions::new().consecutive_failures(5).open_for(secs(5)))
//!     .build()?;
//! # assert_eq!((cache.limits().max_in_flight(), cache.limits().max_waiters()), (20, 2_000));
//! # Ok::<(), seawall::ConfigError>(())
//! ```
//!
//! Unsure of a limit? [`observe_only`] counts what it would refuse, and refuses nothing. All limits can be changed
//! while the cache works: [`Cache::limits`].
//!
//! # Five loads, and what answers them
//!
//! | what happens | the origin sees | callers see | settings |
//! |---|---|---|---|
//! | one hot key expires | one load | the stale value at once; without a window, all wait for that load | [`stale_while_revalidate`], [`spawner`] or [`refresh_with`] |
//! | many keys expire at once | one load for each key, no more at once than the share of refreshes | stale values at once | [`stale_while_revalidate`], [`jitter`], [`max_in_flight`] |
//! | the whole cache is lost | one load for each key, no more at once than the limit | values; beyond the limit a refusal, at once, to be tried again | [`max_in_flight`], [`max_waiters`]; [`warm_up`] |
//! | one key that does not exist | one load in [`absent_time_to_live`] | "there is no such key" | [`absent_time_to_live`], [`screen`] |
//! | ever new keys that do not exist | those that pass the screen, no more at once than the limit | "there is no such key" | [`screen`], [`max_in_flight`] |
//! | the origin answers with errors | at most threshold + limit - 1 loads until the breaker opens, then probes | values that may still be served; without one, the error or a refusal | [`stale_if_error`], [`breaker`], [`backoff`] |
//! | the origin hangs | no more loads at once than the limit, each for the load's timeout | the same; the one whose load it is waits until the timeout, and so do those without a value | [`load_timeout`], [`wait_timeout`], [`max_waiters`], [`min_retry_interval`] |
//! | the origin recovers | a probe, then loads as usual, within the limit | fresh values, after the breaker's pause and the key's at the latest | [`open_for`], [`backoff`] |
//! | a caller leaves in mid-load | its load goes on while anyone waits for it, and is dropped with the last one | the others: nothing of it | async loaders; [`detached_loads`] |
//!
//! In all of them: no key has two loads at once (unless one has outlived its [`lead_timeout`] or was overtaken), permits and places come back on
//! every path, panics included, and nothing is stored that a write or an invalidation has overtaken.
//!
//! # What a caller is told
//!
//! The answers are different types, so that none is taken for another:
//!
//! | answer | meaning | as HTTP, for instance |
//! |---|---|---|
//! | a value, [`Source::Cached`], `Loaded` or `Joined` | fresh | 200 |
//! | a value, [`Source::Stale`] | stale, and why: refreshing, refused, failed, timed out | 200 with its age |
//! | [`LoadError::Absent`], or an [`Outcome`] without a value | the origin says that there is none | 404 |
//! | [`LoadError::Refused`] | the origin was not asked; [`retry_after`] says when to come again, where that is known | 503 |
//! | [`LoadError::TimedOut`] | the load, or this caller's patience, took too long | 504 |
//! | [`LoadError::Failed`] | the loader's error | 502 |
//! | [`LoadError::Panicked`], `Reentrant`, `NothingToKeep`, `Foreign` | a bug: of the loader, or of two loaders of a key with different errors | 500 |
//! | `LoadError::Abandoned` | the load was dropped, by its runtime say | 503 |
//!
//! An error that is the origin's answer ("forbidden") and not an outage is said so by [`classify_errors`]: no stale value
//! covers it, and the breaker does not count it.
//!
//! # Tests without waiting
//!
//! A [manual clock](crate::Clock::manual) stands still until a test moves it: entries expire, pauses end and
//! waits time out in the instant in which it does.
//!
//! ```
//! use std::time::Duration;
//! use seawall::{Cache, Clock, LoadError};
//! use seawall::guard::{BreakerOptions, BreakerState, Refusal};
//!
//! let (clock, hand) = Clock::manual();
//! let breaker = BreakerOptions::new().consecutive_failures(2).open_for(Duration::from_secs(5));
//! let cache: Cache<u32, u32> =
//!     Cache::builder().max_entries(100).breaker(breaker).clock(clock).build()?;
//!
//! for key in 0..2 {
//!     assert_eq!(cache.get_or_load(&key, || Err::<u32, _>("down")), Err(LoadError::Failed("down")));
//! }
//! let refused = cache.get_or_load(&3, || 3);
//! assert!(matches!(refused, Err(LoadError::Refused(Refusal::BreakerOpen { .. }))));
//!
//! hand.advance(Duration::from_secs(5));
//! assert_eq!(cache.get_or_load(&3, || 3), Ok(3));
//! assert_eq!(cache.limits().breaker().state(), BreakerState::Closed);
//! # Ok::<(), seawall::ConfigError>(())
//! ```
//!
//! [`ManualClock::sleepers`](crate::ManualClock::sleepers) says how many wait for a moment, so that a test can move
//! the clock when they do. The example `manual_clock` has tests of a service, async timeouts included.
//!
//! # Watching it work
//!
//! | question | look at |
//! |---|---|
//! | Does the cache hit? | [`Stats`](crate::Stats): `hits_fresh`, `hits_stale`, `misses`, `evicted` |
//! | How much does the origin get? | [`LoadStats`](crate::LoadStats): `started`, `in_flight`, `load_time` |
//! | Is it in trouble? | `failed`, `timed_out`; the [breaker](crate::guard::Limits::breaker)'s state and `openings` |
//! | What do callers see of it? | `served_stale`, `stale_age`, `waits_timed_out` |
//! | Which limit bites? | [`GuardCounts`](crate::guard::GuardCounts)`::refused`, by reason; `observed` in observe-only mode |
//! | Is the screen any good? | `screened`, `screen_unsure`; [`is_overfull`](crate::bloom::RebuildingFilter::is_overfull) |
//!
//! With the feature `metrics`, `Cache::publish_metrics` hands all of it to whatever recorder the program has (the
//! example `prometheus` prints it); with `tracing` each load is a span, which the waits of others follow from.
//!
//! # Limits
//!
//! * It works in one process. Ten processes send an origin ten loads for a key, and ten times the limit.
//! * A refusal is no queue: who is refused comes again, or does without. For what must be done, use a queue.
//! * A cache that is empty has nothing stale. After a restart the limits hold, and callers beyond them are refused
//!   until it is warm: see [`warm_up`].
//! * A stale value that was evicted cannot stand in for an error: make room for what must survive an outage.
//! * An async loader is polled by whichever caller is polled: if it needs a runtime's context, so do all who ask
//!   for that key.
//! * What the engine itself costs and cannot do is said in the [crate's documentation](crate#limits).
//!
//! [`time_to_live`]: crate::Builder::time_to_live
//! [`stale_while_revalidate`]: crate::Builder::stale_while_revalidate
//! [`stale_if_error`]: crate::Builder::stale_if_error
//! [`absent_time_to_live`]: crate::Builder::absent_time_to_live
//! [`jitter`]: crate::Builder::jitter
//! [`early_refresh`]: crate::Builder::early_refresh
//! [`screen`]: crate::Builder::screen
//! [`min_retry_interval`]: crate::Builder::min_retry_interval
//! [`backoff`]: crate::Builder::backoff
//! [`max_waiters`]: crate::Builder::max_waiters
//! [`breaker`]: crate::Builder::breaker
//! [`rate_limit`]: crate::Builder::rate_limit
//! [`max_in_flight`]: crate::Builder::max_in_flight
//! [`background_share`]: crate::Builder::background_share
//! [`load_timeout`]: crate::Builder::load_timeout
//! [`lead_timeout`]: crate::Builder::lead_timeout
//! [`wait_timeout`]: crate::Builder::wait_timeout
//! [`spawner`]: crate::Builder::spawner
//! [`refresh_with`]: crate::Builder::refresh_with
//! [`detached_loads`]: crate::Builder::detached_loads
//! [`classify_errors`]: crate::Builder::classify_errors
//! [`observe_only`]: crate::Builder::observe_only
//! [`open_for`]: crate::guard::BreakerOptions::open_for
//! [`slow_call`]: crate::guard::BreakerOptions::slow_call
//! [`failure_rate`]: crate::guard::BreakerOptions::failure_rate
//! [`Refusal`]: crate::guard::Refusal
//! [`retry_after`]: crate::guard::Refusal::retry_after
//! [`Cache::limits`]: crate::Cache::limits
//! [`get_or_load_async`]: crate::Cache::get_or_load_async
//! [`load`]: crate::Cache::load
//! [`warm_up`]: crate::Cache::warm_up
//! [`Outcome`]: crate::Outcome
//! [`Source::Cached`]: crate::Source::Cached
//! [`Source::Stale`]: crate::Source::Stale
//! [`LoadError::Absent`]: crate::LoadError::Absent
//! [`LoadError::Refused`]: crate::LoadError::Refused
//! [`LoadError::TimedOut`]: crate::LoadError::TimedOut
//! [`LoadError::Failed`]: crate::LoadError::Failed
//! [`LoadError::Panicked`]: crate::LoadError::Panicked
