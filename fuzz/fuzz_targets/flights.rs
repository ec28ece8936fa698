//! Random schedules of callers that load, on one thread, against a model: who joins, leaves or is late, how
//! loads end, and what is said of their keys meanwhile.
//!
//! After each step exactly the callers that were woken are polled, so that a wake-up that is lost shows as a
//! caller that should have been told.

#![no_main]

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, Once};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use seawall::{
    Cache, Clock, InsertOptions, Load, LoadContext, LoadError, ManualClock, Outcome, Source,
    WhyStale,
};

const KEYS: u8 = 3;
const MOST_STEPS: usize = 200;
const FRESH: u64 = 10;
/// Of a key that keeps both tags in use.
const KEEPER: u8 = 200;
const TAGS: [&str; 2] = ["a", "b"];

#[derive(Arbitrary, Debug)]
struct Input {
    /// How long a stale value may cover errors.
    window: u8,
    steps: Vec<Step>,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Step {
    Call {
        key: u8,
        patience: Option<u8>,
        refresh: bool,
    },
    Leave(u8),
    End(u8, End),
    /// Wakes a loader that has nothing to do.
    Rattle(u8),
    /// Polls a caller that was not woken, with another waker.
    Poll(u8),
    Advance(u8),
    Insert(u8, Option<bool>),
    Remove(u8),
    Invalidate(u8),
    InvalidateIf(u8),
    InvalidateTag(bool),
    InvalidateAll,
    MarkStale(u8),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum End {
    Value(Option<bool>),
    NotStored,
    Absent,
    Failed,
    Panicked,
}

/// What a caller is told.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Told {
    Got(Option<u64>, Source),
    Failed,
    Panicked,
    TimedOut,
}

type Result = std::result::Result<Outcome<u64>, LoadError<&'static str>>;

fn told(result: &Result) -> Told {
    match result {
        Ok(outcome) => Told::Got(outcome.value, outcome.source),
        Err(LoadError::Failed("down")) => Told::Failed,
        Err(LoadError::Panicked(message)) if &**message == PLANNED => Told::Panicked,
        Err(LoadError::TimedOut) => Told::TimedOut,
        Err(error) => panic!("{error:?}"),
    }
}

const PLANNED: &str = "planned";

/// What a loader that is a future waits for.
#[derive(Default)]
struct Loader {
    end: Option<(End, u64)>,
    waker: Option<Waker>,
    returned: bool,
    dropped: bool,
}

struct Guard(Arc<Mutex<Loader>>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.lock().unwrap().dropped = true;
    }
}

fn tag_of(tag: Option<bool>) -> Option<usize> {
    tag.map(usize::from)
}

fn options(tag: Option<bool>) -> InsertOptions {
    match tag_of(tag) {
        Some(tag) => InsertOptions::new().tag(TAGS[tag]),
        None => InsertOptions::new(),
    }
}

fn load(
    loader: Arc<Mutex<Loader>>,
) -> impl Future<Output = std::result::Result<Load<u64>, &'static str>> + Send {
    let guard = Guard(loader);
    poll_fn(move |cx| {
        let mut loader = guard.0.lock().unwrap();
        let Some((end, value)) = loader.end else {
            loader.waker = Some(cx.waker().clone());
            return Poll::Pending;
        };
        loader.returned = true;
        drop(loader);
        Poll::Ready(match end {
            End::Value(None) => Ok(Load::Value(value)),
            End::Value(tag) => Ok(Load::With(value, options(tag))),
            End::NotStored => Ok(Load::NotStored(value)),
            End::Absent => Ok(Load::Absent),
            End::Failed => Err("down"),
            End::Panicked => panic!("{PLANNED}"),
        })
    })
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

struct Caller {
    future: Pin<Box<dyn Future<Output = Result>>>,
    woken: Arc<Woken>,
    model: Waiting,
}

/// What the model knows of a caller.
#[derive(Clone, Copy)]
struct Waiting {
    key: usize,
    refresh: bool,
    until: u64,
    seat: Option<Seat>,
}

#[derive(Clone, Copy)]
struct Seat {
    flight: usize,
    leads: bool,
    /// A value that may cover a failure, and until when.
    stale: Option<(u64, u64)>,
    /// How many invalidations of tags there had been.
    joined_at: u64,
}

#[derive(Clone, Copy)]
struct Entry {
    value: u64,
    soft: u64,
    hard: u64,
    tag: Option<usize>,
}

#[derive(Clone, Copy)]
enum Node {
    Empty,
    Pending(usize),
    Entry(Entry, Option<usize>),
}

struct Flight {
    key: usize,
    participants: usize,
    /// How many invalidations of tags there had been when it began.
    since: u64,
    void: bool,
    marked: Option<u64>,
    end: Option<(End, u64)>,
    answer: Option<Answer>,
    dropped: bool,
}

impl Flight {
    fn is_running(&self) -> bool {
        self.answer.is_none() && !self.dropped
    }
}

#[derive(Clone, Copy)]
enum Answer {
    /// With whether one of its tags was invalidated after the load had begun.
    Value(Option<u64>, bool),
    Failed,
    Panicked,
}

struct Model {
    now: u64,
    window: u64,
    nodes: [Node; KEYS as usize],
    flights: Vec<Flight>,
    invalidations: u64,
    tags: [u64; 2],
}

impl Model {
    fn flight_of(&self, key: usize) -> Option<usize> {
        match self.nodes[key] {
            Node::Empty => None,
            Node::Pending(flight) => Some(flight),
            Node::Entry(_, flight) => flight,
        }
    }

    /// The value, while it lives.
    fn live(&self, key: usize) -> Option<Entry> {
        match self.nodes[key] {
            Node::Entry(entry, _) if self.now < entry.hard => Some(entry),
            _ => None,
        }
    }

    fn get(&self, key: usize) -> Option<u64> {
        self.live(key).filter(|entry| self.now < entry.soft).map(|entry| entry.value)
    }

    /// What a caller comes to that has no seat.
    fn begin(&mut self, caller: &mut Waiting) -> Option<Told> {
        let (key, live) = (caller.key, self.live(caller.key));
        if let Some(entry) = live.filter(|entry| self.now < entry.soft && !caller.refresh) {
            return Some(Told::Got(Some(entry.value), Source::Cached));
        }
        let stale = live.filter(|it| self.now >= it.soft).map(|it| (it.value, it.hard));
        let running = self.flight_of(key).filter(|it| {
            let flight = &self.flights[*it];
            flight.is_running() && !flight.void
        });
        let joined_at = self.invalidations;
        if let Some(flight) = running {
            self.flights[flight].participants += 1;
            caller.seat = Some(Seat { flight, leads: false, stale, joined_at });
            return None;
        }
        let flight = self.flights.len();
        self.flights.push(Flight {
            key,
            participants: 1,
            since: self.invalidations,
            void: false,
            marked: None,
            end: None,
            answer: None,
            dropped: false,
        });
        self.nodes[key] = match self.nodes[key] {
            Node::Entry(entry, _) if live.is_some() => Node::Entry(entry, Some(flight)),
            _ => Node::Pending(flight),
        };
        caller.seat = Some(Seat { flight, leads: true, stale, joined_at });
        None
    }

    /// A load whose loader has returned.
    fn conclude(&mut self, number: usize) {
        let flight = &self.flights[number];
        let Some((end, value)) = flight.end.filter(|_| flight.is_running()) else { return };
        let (key, marked, void) = (flight.key, flight.marked, flight.void);
        let stands = self.flight_of(key) == Some(number);
        let mut outdated = false;
        let rest = match self.nodes[key] {
            _ if !stands => self.nodes[key],
            Node::Entry(entry, _) => Node::Entry(entry, None),
            _ => Node::Empty,
        };
        self.nodes[key] = match end {
            End::Value(tag) => {
                let tag = tag_of(tag);
                outdated = tag.is_some_and(|tag| self.tags[tag] > flight.since);
                if stands && !void && !outdated {
                    let soft = marked.unwrap_or(self.now + FRESH);
                    let entry = Entry { value, soft, hard: soft + self.window, tag };
                    Node::Entry(entry, None)
                } else {
                    rest
                }
            }
            End::Absent if stands => Node::Empty,
            _ => rest,
        };
        self.flights[number].answer = Some(match end {
            End::Value(_) | End::NotStored => Answer::Value(Some(value), outdated),
            End::Absent => Answer::Value(None, false),
            End::Failed => Answer::Failed,
            End::Panicked => Answer::Panicked,
        });
    }

    /// What a caller must come to when it is polled.
    fn poll(&mut self, caller: &mut Waiting) -> Option<Told> {
        loop {
            let Some(seat) = caller.seat else {
                if let Some(told) = self.begin(caller) {
                    return Some(told);
                }
                continue;
            };
            self.conclude(seat.flight);
            let flight = &self.flights[seat.flight];
            let source = if seat.leads { Source::Loaded } else { Source::Joined };
            let (plain, why) = match flight.answer {
                Some(Answer::Value(_, true)) if !seat.leads && seat.joined_at > flight.since => {
                    self.leave(caller);
                    continue;
                }
                Some(Answer::Value(value, _)) => {
                    self.leave(caller);
                    return Some(Told::Got(value, source));
                }
                Some(Answer::Failed) => (Told::Failed, WhyStale::Failed),
                Some(Answer::Panicked) => (Told::Panicked, WhyStale::Panicked),
                None if self.now >= caller.until => (Told::TimedOut, WhyStale::TimedOut),
                None => return None,
            };
            self.leave(caller);
            let covers = seat.stale.filter(|(_, dead_at)| self.now < *dead_at);
            return Some(
                covers.map_or(plain, |(value, _)| Told::Got(Some(value), Source::Stale(why))),
            );
        }
    }

    fn leave(&mut self, caller: &mut Waiting) {
        let Some(seat) = caller.seat.take() else { return };
        let flight = &mut self.flights[seat.flight];
        flight.participants -= 1;
        if flight.participants > 0 || !flight.is_running() {
            return;
        }
        flight.dropped = true;
        let key = flight.key;
        if self.flight_of(key) == Some(seat.flight) {
            self.nodes[key] = match self.nodes[key] {
                Node::Entry(entry, _) => Node::Entry(entry, None),
                _ => Node::Empty,
            };
        }
    }

    fn invalidate_if(&mut self, condemned: usize) {
        for key in 0..KEYS as usize {
            if let Some(flight) = self.flight_of(key) {
                self.flights[flight].void = true;
            }
            self.nodes[key] = match self.nodes[key] {
                Node::Entry(..) if key == condemned && self.live(key).is_some() => Node::Empty,
                Node::Pending(_) => Node::Empty,
                node => node,
            };
        }
    }

    fn invalidate_tag(&mut self, tag: usize) {
        self.invalidations += 1;
        self.tags[tag] = self.invalidations;
        for node in &mut self.nodes {
            if matches!(node, Node::Entry(entry, _) if entry.tag == Some(tag)) {
                *node = Node::Empty;
            }
        }
    }

    fn mark_stale(&mut self, key: usize) -> bool {
        let live = self.live(key).is_some();
        match &mut self.nodes[key] {
            node @ Node::Pending(_) => *node = Node::Empty,
            Node::Entry(entry, flight) => {
                if let Some(flight) = *flight {
                    self.flights[flight].marked.get_or_insert(self.now);
                }
                if live && self.now < entry.soft {
                    (entry.soft, entry.hard) = (self.now, self.now + self.window);
                    return true;
                }
            }
            Node::Empty => {}
        }
        live
    }
}

struct Run {
    cache: Cache<u8, u64>,
    hand: ManualClock,
    model: Model,
    loaders: Arc<Mutex<Vec<Arc<Mutex<Loader>>>>>,
    callers: Vec<Caller>,
    values: u64,
}

impl Run {
    fn new(input: &Input) -> Run {
        let (clock, hand) = Clock::manual();
        let window = u64::from(input.window % 16);
        let cache = Cache::builder()
            .max_entries(100)
            .time_to_live(Duration::from_millis(FRESH))
            .stale_if_error(Duration::from_millis(window))
            .lead_timeout(Duration::MAX)
            .clock(clock)
            .build()
            .unwrap();
        let model = Model {
            now: 0,
            window,
            nodes: [Node::Empty; KEYS as usize],
            flights: Vec::new(),
            invalidations: 0,
            tags: [0; 2],
        };
        let run =
            Run { cache, hand, model, loaders: Arc::default(), callers: Vec::new(), values: 0 };
        run.keep_tags();
        run
    }

    /// A tag that no entry has may be forgotten; who is given it later cannot know what became of it.
    fn keep_tags(&self) {
        let options = InsertOptions::new().no_deadline().tag(TAGS[0]).tag(TAGS[1]);
        self.cache.insert_with(KEEPER, 0, options).unwrap();
    }

    fn next_value(&mut self) -> u64 {
        self.values += 1;
        self.values
    }

    fn call(&mut self, key: u8, patience: Option<u8>, refresh: bool) {
        let (cache, loaders) = (self.cache.clone(), Arc::clone(&self.loaders));
        let future = async move {
            let mut request = cache.load(&key);
            if let Some(patience) = patience {
                request = request.timeout(Duration::from_millis(patience.into()));
            }
            if refresh {
                request = request.refresh();
            }
            let begin = |_: LoadContext<u8, u64>| {
                let loader: Arc<Mutex<Loader>> = Arc::default();
                loaders.lock().unwrap().push(Arc::clone(&loader));
                load(loader)
            };
            request.run_async(begin).await
        };
        let until = patience.map_or(u64::MAX, |patience| self.model.now + u64::from(patience));
        let model = Waiting { key: key.into(), refresh, until, seat: None };
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        self.callers.push(Caller { future: Box::pin(future), woken, model });
    }

    /// Polls a caller, and compares what comes of it. Returns whether it is done.
    fn poll(&mut self, place: usize) -> bool {
        let caller = &mut self.callers[place];
        let waker = Waker::from(Arc::clone(&caller.woken));
        let polled = caller.future.as_mut().poll(&mut Context::from_waker(&waker));
        let expected = self.model.poll(&mut caller.model);
        let got = match &polled {
            Poll::Ready(result) => Some(told(result)),
            Poll::Pending => None,
        };
        assert_eq!(got, expected, "of a caller of key {}", caller.model.key);
        polled.is_ready()
    }

    /// Polls those who were woken, until nobody is.
    fn settle(&mut self) {
        let mut place = 0;
        while place < self.callers.len() {
            if !self.callers[place].woken.0.swap(false, SeqCst) {
                place += 1;
                continue;
            }
            if self.poll(place) {
                drop(self.callers.swap_remove(place));
            }
            place = 0;
        }
    }

    fn loader(&self, number: u8) -> Option<(usize, Arc<Mutex<Loader>>)> {
        let running: VecDeque<usize> = (0..self.model.flights.len())
            .filter(|it| self.model.flights[*it].is_running())
            .collect();
        let flight = *running.get(usize::from(number) % running.len().max(1))?;
        Some((flight, Arc::clone(&self.loaders.lock().unwrap()[flight])))
    }

    fn step(&mut self, step: Step) {
        let place = |key: u8| usize::from(key % KEYS);
        match step {
            Step::Call { key, patience, refresh } => self.call(key % KEYS, patience, refresh),
            Step::Leave(caller) if !self.callers.is_empty() => {
                let place = usize::from(caller) % self.callers.len();
                let mut caller = self.callers.swap_remove(place);
                drop(caller.future);
                self.model.leave(&mut caller.model);
            }
            Step::Poll(caller) if !self.callers.is_empty() => {
                let place = usize::from(caller) % self.callers.len();
                self.callers[place].woken = Arc::new(Woken(AtomicBool::new(false)));
                if self.poll(place) {
                    drop(self.callers.swap_remove(place));
                }
            }
            Step::Leave(_) | Step::Poll(_) => {}
            Step::End(number, end) => {
                let value = self.next_value();
                if let Some((flight, loader)) = self.loader(number) {
                    loader.lock().unwrap().end = Some((end, value));
                    self.model.flights[flight].end = Some((end, value));
                    let waker = loader.lock().unwrap().waker.take();
                    waker.into_iter().for_each(Waker::wake);
                }
            }
            Step::Rattle(number) => {
                if let Some((_, loader)) = self.loader(number) {
                    let waker = loader.lock().unwrap().waker.clone();
                    waker.into_iter().for_each(Waker::wake);
                }
            }
            Step::Advance(millis) => {
                let millis = u64::from(millis % 32);
                self.model.now += millis;
                self.hand.advance(Duration::from_millis(millis));
            }
            Step::Insert(key, tag) => {
                let value = self.next_value();
                self.cache.insert_with(key % KEYS, value, options(tag)).unwrap();
                let (soft, tag) = (self.model.now + FRESH, tag_of(tag));
                let entry = Entry { value, soft, hard: soft + self.model.window, tag };
                self.model.nodes[place(key)] = Node::Entry(entry, None);
            }
            Step::Remove(key) => {
                let live = self.model.live(place(key)).map(|entry| entry.value);
                assert_eq!(self.cache.remove(&(key % KEYS)), live);
                self.model.nodes[place(key)] = Node::Empty;
            }
            Step::Invalidate(key) => {
                let live = self.model.live(place(key)).is_some();
                assert_eq!(self.cache.invalidate(&(key % KEYS)), live);
                self.model.nodes[place(key)] = Node::Empty;
            }
            Step::InvalidateIf(key) => {
                let live = self.model.live(place(key)).is_some();
                let taken = self.cache.invalidate_if(|other, _| *other == key % KEYS);
                assert_eq!(taken, usize::from(live));
                self.model.invalidate_if(place(key));
            }
            Step::InvalidateTag(tag) => {
                assert!(self.cache.invalidate_tag(TAGS[usize::from(tag)]));
                self.model.invalidate_tag(tag.into());
                self.keep_tags();
            }
            Step::InvalidateAll => {
                self.cache.invalidate_all();
                self.model.nodes = [Node::Empty; KEYS as usize];
                self.keep_tags();
            }
            Step::MarkStale(key) => {
                let marked = self.model.mark_stale(place(key));
                assert_eq!(self.cache.mark_stale(&(key % KEYS)), marked);
            }
        }
    }

    fn check(&self) {
        let model = &self.model;
        for key in 0..KEYS {
            assert_eq!(self.cache.peek(&key), model.get(key.into()), "key {key}");
        }
        let loaders = self.loaders.lock().unwrap();
        assert_eq!(loaders.len(), model.flights.len(), "calls of loaders");
        for (loader, flight) in loaders.iter().zip(&model.flights) {
            let loader = loader.lock().unwrap();
            assert_eq!(loader.dropped, !flight.is_running(), "a loader is dropped with its load");
            assert_eq!(loader.returned, flight.answer.is_some());
        }
        let running = model.flights.iter().filter(|flight| flight.is_running()).count() as u64;
        let follows = |caller: &&Caller| caller.model.seat.is_some_and(|seat| !seat.leads);
        let waiting = self.callers.iter().filter(follows).count() as u64;
        let stats = self.cache.load_stats();
        assert_eq!((stats.in_flight, stats.waiting), (running, waiting), "in flight, waiting");
        assert_eq!(stats.started, model.flights.len() as u64);
        let timed = self.callers.iter().filter(|caller| caller.model.until < u64::MAX).count();
        assert_eq!(self.hand.sleepers(), timed, "who waits for a deadline");
    }

    fn end(mut self) {
        while let Some(mut caller) = self.callers.pop() {
            drop(caller.future);
            self.model.leave(&mut caller.model);
            self.settle();
            self.check();
        }
        let stats = self.cache.load_stats();
        assert_eq!((stats.in_flight, stats.waiting), (0, 0));
        self.cache.sweep(usize::MAX);
        self.hand.advance(Duration::from_secs(1));
        self.cache.sweep(usize::MAX);
        assert_eq!(
            (self.cache.len(), self.cache.weight()),
            (1, 1),
            "only the tags' keeper is left"
        );
    }
}

/// A loader's panic is no finding.
fn allow_planned_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let abort = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let planned = info.payload().downcast_ref::<String>().is_some_and(|it| it == PLANNED)
                || info.payload().downcast_ref::<&str>().is_some_and(|it| *it == PLANNED);
            if !planned {
                abort(info);
            }
        }));
    });
}

fuzz_target!(|input: Input| {
    allow_planned_panics();
    let mut run = Run::new(&input);
    for step in input.steps.iter().take(MOST_STEPS) {
        run.step(*step);
        run.settle();
        run.check();
    }
    run.end();
});
