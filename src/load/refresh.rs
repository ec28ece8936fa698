//! Where refreshes run when no caller waits for them.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// A load that runs on its own.
pub type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs futures to their end: an async runtime, as a cache sees it; for
/// [`Builder::spawner`](crate::Builder::spawner).
///
/// Implemented for closures, and with the feature `tokio` for `tokio::runtime::Handle`. A future that is
/// dropped instead of run ends its load as abandoned.
pub trait Spawn: Send + Sync {
    /// Begins to run a future, and returns at once.
    fn spawn(&self, future: BoxFuture);
}

impl<F: Fn(BoxFuture) + Send + Sync> Spawn for F {
    fn spawn(&self, future: BoxFuture) {
        self(future);
    }
}

#[cfg(feature = "tokio")]
impl Spawn for tokio::runtime::Handle {
    fn spawn(&self, future: BoxFuture) {
        drop(tokio::runtime::Handle::spawn(self, future));
    }
}

pub(super) type Job = Box<dyn FnOnce() + Send>;

/// How long an idle thread stays.
const IDLE: Duration = Duration::from_secs(5);

/// A few threads for blocking refreshes, started when there is something to do. They end when they have
/// been idle, and at once when the pool is gone; nobody waits for them.
pub(crate) struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    most: usize,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                // It catches the loader's panics itself; copies and destructors may panic too.
                if let Err(panic) = catch_unwind(AssertUnwindSafe(job)) {
                    let _ = catch_unwind(AssertUnwindSafe(|| drop(panic)));
                }
                state = self.lock();
                continue;
            }
            if state.closed {
                break;
            }
            state.idle += 1;
            let (next, waited) =
                self.wake.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = next;
            state.idle -= 1;
            if waited.timed_out() && state.jobs.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("threads", &self.shared.lock().threads).finish()
    }
}

impl Pool {
    pub(crate) fn new(most: usize) -> Pool {
        let (state, wake) = (Mutex::default(), Condvar::new());
        Pool { shared: Arc::new(Shared { state, wake, most: most.max(1) }) }
    }

    /// Runs a job on a thread of the pool. Gives it back if no thread can be started and there is none.
    pub(super) fn run(&self, job: Job) -> Result<(), Job> {
        let mut state = self.shared.lock();
        state.jobs.push_back(job);
        if state.idle >= state.jobs.len() || state.threads >= self.shared.most {
            self.shared.wake.notify_one();
            return Ok(());
        }
        state.threads += 1;
        drop(state);
        let shared = Arc::clone(&self.shared);
        let spawned =
            thread::Builder::new().name("seawall-refresh".to_owned()).spawn(move || shared.work());
        if spawned.is_err() {
            let mut state = self.shared.lock();
            state.threads -= 1;
            if state.threads == 0 {
                return state.jobs.pop_back().map_or(Ok(()), Err);
            }
        }
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.wake.notify_all();
    }
}
