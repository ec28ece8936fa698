//! Many callers of one cold key: how long until the last has its value, and what one takes to wait.

use super::subjects::{Blocking, Shared};
use crate::heap::Heap;
use crate::subjects::{Block, block};
use std::future::pending;
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicIsize, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// How long the origin takes once all callers are there.
const ORIGIN: Duration = Duration::from_millis(5);
const LOOK: Duration = Duration::from_millis(1);
static KEY: u64 = 7;
/// A key that threads know before they all ask for the other.
const KNOWN: u64 = 8;

/// What one burst came to.
#[derive(Clone, Copy)]
pub struct Burst {
    pub loads: usize,
    /// From the end of the load until the last caller had its value.
    pub total: Duration,
    /// Live heap when all were waiting.
    pub live: isize,
    /// The size of a caller's future.
    pub future: usize,
}

/// Those who want the key.
struct Crowd {
    size: usize,
    arrived: AtomicUsize,
    gone: AtomicUsize,
    loads: AtomicUsize,
    start: Instant,
    /// Nanoseconds since `start`.
    loaded: AtomicU64,
    last: AtomicU64,
    live: AtomicIsize,
}

impl Crowd {
    fn new(size: usize) -> Self {
        Crowd {
            size,
            arrived: AtomicUsize::new(0),
            gone: AtomicUsize::new(0),
            loads: AtomicUsize::new(0),
            start: Instant::now(),
            loaded: AtomicU64::new(0),
            last: AtomicU64::new(0),
            live: AtomicIsize::new(0),
        }
    }

    fn nanos(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn is_there(&self) -> bool {
        self.arrived.load(SeqCst) == self.size
    }

    fn arrive(&self) {
        self.arrived.fetch_add(1, SeqCst);
    }

    fn leave(&self) {
        if self.gone.fetch_add(1, SeqCst) + 1 == self.size {
            self.last.store(self.nanos(), SeqCst);
        }
    }

    fn load_begins(&self) {
        self.loads.fetch_add(1, SeqCst);
    }

    fn load_ends(&self) -> Block {
        self.live.store(Heap::live(), SeqCst);
        let value = block(KEY);
        self.loaded.store(self.nanos(), SeqCst);
        value
    }

    fn burst(&self, future: usize) -> Burst {
        let total = self.last.load(SeqCst).saturating_sub(self.loaded.load(SeqCst));
        Burst {
            loads: self.loads.load(SeqCst),
            total: Duration::from_nanos(total),
            live: self.live.load(SeqCst),
            future,
        }
    }
}

pub fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime")
}

async fn origin(crowd: &'static Crowd) -> Block {
    crowd.load_begins();
    while !crowd.is_there() {
        tokio::time::sleep(LOOK).await;
    }
    tokio::time::sleep(ORIGIN).await;
    crowd.load_ends()
}

/// Tasks live as long as they like; what they all use is left behind, so that they count no references
/// to it.
fn leak<T>(thing: T) -> &'static T {
    Box::leak(Box::new(thing))
}

/// As many tasks as asked for, all of one cold key. Their handles are kept until all are done, and with them
/// the memory that the runtime has for each task: else its workers would wait for the allocator's lock.
pub fn tasks<S: Shared<Block>>(runtime: &Runtime, waiters: usize) -> Burst {
    let crowd = leak(Crowd::new(waiters));
    let subject = leak(S::build(1_000));
    let call = || {
        runtime.spawn(async {
            crowd.arrive();
            let answer = subject.get(&KEY, || origin(crowd)).await;
            black_box(S::value(answer)[0]);
            crowd.leave();
        })
    };
    let handles: Vec<_> = (0..waiters).map(|_| call()).collect();
    while crowd.last.load(SeqCst) == 0 {
        std::thread::sleep(LOOK);
    }
    drop(handles);
    crowd.burst(size_of_val(&subject.get(&KEY, || origin(crowd))))
}

/// Live heap while as many tasks wait for nothing.
pub fn bare_tasks(runtime: &Runtime, waiters: usize) -> isize {
    let crowd = leak(Crowd::new(waiters));
    let wait = || {
        runtime.spawn(async {
            crowd.arrive();
            pending::<()>().await;
        })
    };
    let handles: Vec<_> = (0..waiters).map(|_| wait()).collect();
    while !crowd.is_there() {
        std::thread::sleep(LOOK);
    }
    std::thread::sleep(ORIGIN);
    let live = Heap::live();
    drop(handles);
    live
}

/// As many blocking threads as asked for, all of one cold key. Returns the live heap before they ask, too.
pub fn threads<S: Blocking<Block>>(waiters: usize) -> (Burst, isize) {
    let crowd = Crowd::new(waiters);
    let subject = S::build(1_000);
    let (warm, go) = (Barrier::new(waiters + 1), Barrier::new(waiters + 1));
    let caller = || {
        // What a thread takes for its first call of a subject is not for waiting.
        subject.get(KNOWN, || block(KNOWN));
        warm.wait();
        go.wait();
        crowd.arrive();
        let value = subject.get(KEY, || {
            crowd.load_begins();
            while !crowd.is_there() {
                std::thread::sleep(LOOK);
            }
            std::thread::sleep(ORIGIN);
            crowd.load_ends()
        });
        black_box(value[0]);
        crowd.leave();
    };
    let before = std::thread::scope(|scope| {
        for _ in 0..waiters {
            std::thread::Builder::new()
                .stack_size(64 * 1024)
                .spawn_scoped(scope, caller)
                .expect("a thread");
        }
        warm.wait();
        std::thread::sleep(ORIGIN);
        let before = Heap::live();
        go.wait();
        before
    });
    (crowd.burst(0), before)
}
