//! What can be a key, and which bytes of it are hashed.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_128_with_seed;

/// Returns the 128-bit xxh3 hash of some bytes with a seed: what all implementations of [`BloomKey`]
/// in this crate are made of.
#[inline]
pub fn hash_bytes(bytes: &[u8], seed: u64) -> u128 {
    xxh3_128_with_seed(bytes, seed)
}

/// A key of a Bloom filter: something with a hash that is the same in every process and on every
/// platform. That is why it is not [`Hash`](std::hash::Hash), whose bytes depend on the platform and on
/// the version of the standard library.
///
/// | key | bytes that are hashed |
/// |---|---|
/// | `str`, `String` | UTF-8, without a length |
/// | `[u8]`, `[u8; N]`, `Vec<u8>` | the bytes, without a length |
/// | integers | as many as the type has, little endian; `usize` and `isize` as 64 bits |
/// | `char`, `bool` | as `u32`, as `u8` |
/// | `Ipv4Addr`, `Ipv6Addr`, `IpAddr` | 4 or 16 octets |
/// | `&T`, `Box<T>`, `Rc<T>`, `Arc<T>`, `Cow<T>` | as `T` |
/// | tuples of 2 to 4 keys | the elements' hashes, each as 16 bytes, little endian |
///
/// So `"a"` and `b"a"` are the same key, and so are `1u64` and its eight bytes; `1u32` and `1u64` are
/// not. To use a hash of 64 bits that you have at hand, insert it as a `u64`; one of 128 well mixed bits
/// can be used as it is ([`Filter::insert_hash`](super::Filter::insert_hash)).
///
/// ```
/// use seawall::bloom::{BloomKey, hash_bytes};
///
/// struct UserId { tenant: u32, name: String }
///
/// impl BloomKey for UserId {
///     fn bloom_hash(&self, seed: u64) -> u128 {
///         (self.tenant, self.name.as_str()).bloom_hash(seed)
///     }
/// }
///
/// assert_eq!("key".bloom_hash(7), hash_bytes(b"key", 7));
/// let id = UserId { tenant: 1, name: "alice".to_owned() };
/// assert_ne!(id.bloom_hash(7), id.bloom_hash(8));
/// ```
pub trait BloomKey {
    /// Returns the key's hash. It must depend on nothing but the key and the seed, and all 128 bits must
    /// be well mixed: a filter takes its block from the upper half and its bits from the lower.
    fn bloom_hash(&self, seed: u64) -> u128;
}

macro_rules! by_bytes {
    ($($t:ty),+ => |$it:ident| $bytes:expr) => { $(
        impl BloomKey for $t {
            #[inline]
            fn bloom_hash(&self, seed: u64) -> u128 {
                let $it = self;
                hash_bytes($bytes, seed)
            }
        }
    )+ };
}

by_bytes!(str, String => |text| text.as_bytes());
by_bytes!([u8], Vec<u8> => |bytes| bytes);
by_bytes!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128 => |number| &number.to_le_bytes());
by_bytes!(usize => |number| &(*number as u64).to_le_bytes());
by_bytes!(isize => |number| &(*number as i64).to_le_bytes());
by_bytes!(char => |it| &u32::from(*it).to_le_bytes());
by_bytes!(bool => |it| &[u8::from(*it)]);
by_bytes!(Ipv4Addr, Ipv6Addr => |address| &address.octets());

impl<const N: usize> BloomKey for [u8; N] {
    #[inline]
    fn bloom_hash(&self, seed: u64) -> u128 {
        hash_bytes(self, seed)
    }
}

impl BloomKey for IpAddr {
    #[inline]
    fn bloom_hash(&self, seed: u64) -> u128 {
        match self {
            IpAddr::V4(address) => address.bloom_hash(seed),
            IpAddr::V6(address) => address.bloom_hash(seed),
        }
    }
}

macro_rules! as_inner {
    ($($t:ty),+) => { $(
        impl<T: BloomKey + ?Sized> BloomKey for $t {
            #[inline]
            fn bloom_hash(&self, seed: u64) -> u128 {
                (**self).bloom_hash(seed)
            }
        }
    )+ };
}

as_inner!(&T, &mut T, Box<T>, Rc<T>, Arc<T>);

impl<T: BloomKey + ToOwned + ?Sized> BloomKey for Cow<'_, T> {
    #[inline]
    fn bloom_hash(&self, seed: u64) -> u128 {
        (**self).bloom_hash(seed)
    }
}

macro_rules! tuples {
    ($(($($t:ident $i:tt),+) $len:literal;)+) => { $(
        impl<$($t: BloomKey),+> BloomKey for ($($t,)+) {
            #[inline]
            fn bloom_hash(&self, seed: u64) -> u128 {
                let mut bytes = [0; 16 * $len];
                let hashes = [$(self.$i.bloom_hash(seed)),+];
                for (place, hash) in bytes.chunks_exact_mut(16).zip(hashes) {
                    place.copy_from_slice(&hash.to_le_bytes());
                }
                hash_bytes(&bytes, seed)
            }
        }
    )+ };
}

tuples! {
    (A 0, B 1) 2;
    (A 0, B 1, C 2) 3;
    (A 0, B 1, C 2, D 3) 4;
}
