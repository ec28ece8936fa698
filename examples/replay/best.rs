//! What no cache can do better, computed from the future.

use std::collections::BinaryHeap;

use crate::trace::Trace;

/// A key that does not occur again.
pub(crate) const NEVER: u32 = u32::MAX;

/// Where the key of each request occurs next.
pub(crate) fn next_uses(trace: &Trace) -> Vec<u32> {
    let mut seen = vec![NEVER; trace.distinct()];
    let mut next = vec![NEVER; trace.requests().len()];
    for (now, &key) in trace.requests().iter().enumerate().rev() {
        next[now] = std::mem::replace(&mut seen[key as usize], now as u32);
    }
    next
}

/// Hits of Bélády's MIN, the best for a number of entries: if one has to go, the one that is needed latest
/// goes, be it the new one.
///
/// Entries are known by the position of their next use.
pub(crate) fn min(next: &[u32], capacity: u64) -> u64 {
    let mut is_held = vec![false; next.len()];
    // The latest needed is on top. Those that were used meanwhile lie below all that are held.
    let mut latest = BinaryHeap::new();
    let (mut hits, mut held) = (0, 0);
    for (now, &then) in next.iter().enumerate() {
        if is_held[now] {
            hits += 1;
            held -= 1;
        }
        if then == NEVER {
            continue;
        }
        if held < capacity {
            latest.push(then);
            held += 1;
        } else {
            let Some(mut top) = latest.peek_mut().filter(|top| **top > then) else {
                continue;
            };
            is_held[*top as usize] = false;
            *top = then;
        }
        is_held[then as usize] = true;
        if latest.len() as u64 > 2 * held + 1024 {
            latest.retain(|then| *then as usize > now);
        }
    }
    hits
}

/// No cache hits more, and none may hit as much; each of the two for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) hits: u64,
    pub(crate) bytes: u128,
}

/// An entry held from one request of its key to the next, where it is a hit.
struct Stay {
    /// Weight times duration.
    cost: u64,
    /// What the hit brings.
    bytes: u64,
}

/// A bound for a budget in bytes, where the best itself is too hard to compute.
///
/// All stays have to share the budget times the length of the trace. The bound gives it to those that
/// make the most of it, whether or not they fit at each moment.
pub(crate) fn bound(trace: &Trace, next: &[u32], budget: u64) -> Bound {
    let mut stays = stays(trace, next, budget);
    let all = u128::from(budget) * (next.len() as u128 - 1);

    stays.sort_unstable_by_key(|stay| stay.cost);
    let mut left = all;
    let mut pay = |stay: &&Stay| match left.checked_sub(stay.cost.into()) {
        Some(rest) => {
            left = rest;
            true
        }
        None => false,
    };
    let hits = stays.iter().take_while(&mut pay).count() as u64;

    let product = |cost: u64, bytes: u64| u128::from(cost) * u128::from(bytes);
    stays.sort_unstable_by(|a, b| product(a.cost, b.bytes).cmp(&product(b.cost, a.bytes)));
    let (mut left, mut bytes) = (all, 0);
    for stay in &stays {
        match left.checked_sub(stay.cost.into()) {
            Some(rest) => {
                left = rest;
                bytes += u128::from(stay.bytes);
            }
            None => {
                // A part of the last one: less than its cost is left, so that this is no more than its bytes.
                bytes += product(left as u64, stay.bytes) / u128::from(stay.cost);
                break;
            }
        }
    }
    Bound { hits, bytes }
}

/// All stays of what is not too heavy.
fn stays(trace: &Trace, next: &[u32], budget: u64) -> Vec<Stay> {
    // An entry may be of any earlier request of its key: count the lightest.
    let mut lightest = vec![u64::MAX; trace.distinct()];
    let mut stays = Vec::new();
    for (now, (&key, &then)) in trace.requests().iter().zip(next).enumerate() {
        let weight = &mut lightest[key as usize];
        *weight = (*weight).min(trace.size(now).max(1));
        if then != NEVER && *weight <= budget {
            let cost = weight.saturating_mul(u64::from(then) - now as u64);
            stays.push(Stay { cost, bytes: trace.size(then as usize) });
        }
    }
    stays
}
