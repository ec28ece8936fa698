//! Hostile snapshots: decoding never panics, never allocates more than a small multiple of what it was
//! given, and what it accepts encodes to the same bytes.
//!
//! Every input is tried as it is and with a right checksum, else the fuzzer would never get past that.

#![no_main]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use libfuzzer_sys::fuzz_target;
use seawall::bloom::{Filter, hash_bytes};

/// The largest allocation since it was last reset.
struct Watched;

static LARGEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all is left to the system's allocator.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Relaxed);
        // SAFETY: by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: by the caller.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static HEAP: Watched = Watched;

fn check(bytes: &[u8]) {
    LARGEST.store(0, Relaxed);
    let decoded = Filter::from_bytes(bytes);
    let streamed = Filter::read_from(&mut { bytes });
    let largest = LARGEST.load(Relaxed);
    // A stream's vector doubles; an error has a box.
    assert!(largest <= 2 * bytes.len() + 1024, "{largest} for {}", bytes.len());
    let Ok(filter) = decoded else {
        // A stream may go on after a filter; else it accepts what is accepted as a whole.
        if let Ok(filter) = streamed {
            assert!(filter.to_bytes().len() < bytes.len());
        }
        return;
    };
    assert_eq!(filter.to_bytes(), bytes);
    assert_eq!(streamed.expect("accepted as a whole").to_bytes(), bytes);
    // It works like any other.
    filter.insert(&1u64);
    assert!(filter.contains(&1u64));
    let _ = (filter.is_overfull(), filter.estimated_items(), filter.false_positive_rate());
}

/// A prefix of header and blocks that is complete, with its checksum.
fn completed(bytes: &[u8]) -> Vec<u8> {
    let mut whole = b"\x89SWBLOOM\x01\0\0\0\x01\x08\x06\0".to_vec();
    whole.extend(bytes);
    // At least three blocks; see below.
    whole.resize(whole.len().max(64 + 3 * 64), 0);
    let content = (whole.len() - 64) / 64 * 64;
    whole.truncate(64 + content);
    // Half of the inputs claim the right number of blocks.
    if bytes.first().is_some_and(|byte| byte % 2 == 0) {
        whole[24..32].copy_from_slice(&(content as u64 / 64).to_le_bytes());
        whole[40..64].fill(0);
    }
    // The 64-bit xxh3 of more than 240 bytes is the lower half of the 128-bit one.
    let sum = hash_bytes(&whole, 0) as u64;
    whole.extend(sum.to_le_bytes());
    whole
}

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    check(&completed(bytes));
});
