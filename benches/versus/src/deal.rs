//! Deals the requests of a trace to threads.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Requests that a thread takes at a time, when there are several.
const DEAL: usize = 64;

/// Hands `replay` all of `requests`, in parts of [`DEAL`] if there are several threads, so that
/// their order is roughly kept. Gives what was gathered, by thread.
pub fn deal<T: Sync, R: Default + Send>(
    requests: &[T],
    threads: usize,
    replay: impl Fn(&[T], &mut R) + Sync,
) -> Vec<R> {
    if threads == 1 {
        let mut all = R::default();
        replay(requests, &mut all);
        return vec![all];
    }
    let next = AtomicUsize::new(0);
    // So that a short trace is not over before the last thread runs.
    let barrier = Barrier::new(threads);
    let work = || {
        let mut mine = R::default();
        barrier.wait();
        loop {
            let from = next.fetch_add(DEAL, Ordering::Relaxed);
            if from >= requests.len() {
                return mine;
            }
            let to = requests.len().min(from + DEAL);
            replay(&requests[from..to], &mut mine);
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().expect("a thread panicked")).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::deal;

    #[test]
    fn each_request_is_dealt_once() {
        let requests: Vec<u64> = (0..1000).collect();
        for threads in [1, 2, 3] {
            let parts = deal(&requests, threads, |part, mine: &mut Vec<u64>| mine.extend(part));
            assert_eq!(parts.len(), threads);
            let mut all: Vec<u64> = parts.concat();
            all.sort_unstable();
            assert_eq!(all, requests);
        }
    }
}
