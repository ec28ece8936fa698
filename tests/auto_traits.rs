//! What may be sent to and shared with other threads, checked when this file is compiled.

#![allow(dead_code, reason = "most is only used by constants, which old compilers do not look at")]

use std::cell::Cell;
use std::error::Error;
use std::fmt::Debug;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::rc::Rc;
use std::sync::MutexGuard;

use seawall::{
    Builder, Cache, Clock, Compute, Computed, ConfigError, Entry, EntryState, InsertOptions,
    Inserted, Iter, ManualClock, Pinned, PinnedIter, Refused, RefusedReason, RemovalCause, Stats,
};

/// Whether a type has a trait, as a constant: of two constants of one name, the inherent one counts.
macro_rules! is {
    ($t:ty: $bound:path) => {{
        trait Not {
            const IS: bool = false;
        }
        impl<T: ?Sized> Not for T {}
        struct Probe<T: ?Sized>(PhantomData<T>);
        impl<T: ?Sized + $bound> Probe<T> {
            const IS: bool = true;
        }
        <Probe<$t>>::IS
    }};
}

macro_rules! assert_is {
    ($($t:ty: $($bound:path),+;)+) => { $($(const _: () = assert!(is!($t: $bound));)+)+ };
}

macro_rules! assert_is_not {
    ($($t:ty: $($bound:path),+;)+) => { $($(const _: () = assert!(!is!($t: $bound));)+)+ };
}

type Map<K, V> = Cache<K, V, BuildHasherDefault<DefaultHasher>>;
/// May be shared, but not sent.
type Shared = MutexGuard<'static, ()>;
/// May be sent, but not shared.
type Sent = Cell<u8>;
type Local = Rc<u8>;

// A cache hands out copies and frees values on any of its threads: both are needed of keys and values.
assert_is! {
    Cache<u64, String>: Send, Sync, Unpin;
    Map<u64, String>: Send, Sync, Unpin;
    Cache<&'static str, Box<dyn Debug + Send + Sync>>: Send, Sync;
}
assert_is_not! {
    Cache<Local, u8>: Send, Sync;
    Cache<u8, Local>: Send, Sync;
    Cache<Sent, u8>: Send, Sync;
    Cache<u8, Sent>: Send, Sync;
    Cache<Shared, u8>: Send, Sync;
    Cache<u8, Shared>: Send, Sync;
    Cache<u8, u8, Local>: Send, Sync;
    Cache<u8, u8, Sent>: Send, Sync;
}

// A session belongs to the thread that it pins, so it cannot be held across an `.await` of a task that
// moves between threads.
assert_is_not! {
    Pinned<'static, u8, u8>: Send, Sync;
    PinnedIter<'static, u8, u8, DefaultHasher>: Send, Sync;
}

// The plain iterator holds no pin.
assert_is! {
    Iter<'static, u64, String, BuildHasherDefault<DefaultHasher>>: Send, Sync, Unpin;
}
assert_is_not! {
    Iter<'static, u8, Local, DefaultHasher>: Send, Sync;
    Iter<'static, Local, u8, DefaultHasher>: Send, Sync;
}

// An entry is a reference to a key and a value.
assert_is_not! {
    Entry<'static, u8, Local>: Send, Sync;
    Entry<'static, Local, u8>: Send, Sync;
    Entry<'static, u8, Sent>: Send, Sync;
}

assert_is! {
    Builder<u64, String>: Send, Sync, Unpin;
    InsertOptions: Send, Sync, Unpin, Clone, Default, UnwindSafe, RefUnwindSafe;
    Clock: Send, Sync, Unpin, Clone, Default;
    ManualClock: Send, Sync, Unpin, Clone, UnwindSafe, RefUnwindSafe;
    Stats: Send, Sync, Unpin, Copy, PartialEq, UnwindSafe, RefUnwindSafe;
    Inserted: Send, Sync, Copy, Eq, UnwindSafe, RefUnwindSafe;
    Computed: Send, Sync, Copy, Eq, UnwindSafe, RefUnwindSafe;
    Compute<String>: Send, Sync, Clone, UnwindSafe, RefUnwindSafe;
    EntryState: Send, Sync, Copy, Eq, UnwindSafe, RefUnwindSafe;
    RemovalCause: Send, Sync, Copy, Eq, UnwindSafe, RefUnwindSafe;
}
assert_is_not! {
    Compute<Local>: Send, Sync;
    Builder<u8, u8, Local>: Send, Sync;
}

// Errors can be boxed and passed on; a refusal is what its value is.
assert_is! {
    ConfigError: Send, Sync, Unpin, Clone, Error, UnwindSafe, RefUnwindSafe;
    RefusedReason: Send, Sync, Copy, Eq, UnwindSafe, RefUnwindSafe;
    Refused<String>: Send, Sync, Unpin, Clone, Error, UnwindSafe, RefUnwindSafe;
    Refused<Local>: Error;
}
assert_is_not! {
    Refused<Local>: Send, Sync;
    Refused<Sent>: Sync;
}

/// A value that has no trait at all.
struct Nothing;

#[test]
fn a_cache_asks_nothing_of_values_that_it_does_not_copy() {
    let cache: Cache<u8, Nothing> = Cache::new(10);
    assert!(cache.insert(1, Nothing).is_ok());
    assert!(cache.get_with(&1, |_| ()).is_some());
    assert!(cache.clone().invalidate(&1));
    let refused = cache.replace_if(1, Nothing, |_| true).unwrap_err();
    let boxed: Box<dyn Error + Send + Sync> = Box::new(refused);
    assert_eq!(boxed.to_string(), "the key is absent");
}

#[test]
fn a_cache_of_values_that_stay_on_their_thread_can_be_used_there() {
    let cache: Cache<Rc<str>, Rc<u8>> = Cache::new(10);
    cache.insert("a".into(), Rc::new(1)).unwrap();
    assert_eq!(cache.get("a").as_deref(), Some(&1));
    assert_eq!(cache.iter().count(), 1);
}

#[test]
fn the_probe_tells_types_with_a_trait_from_others() {
    assert!(is!(u8: Send));
    assert!(!is!(Rc<u8>: Send));
}
