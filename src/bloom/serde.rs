//! A filter in serde's data model: the bytes of its snapshot.

use std::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::filter::Filter;

/// As the bytes that [`Filter::to_bytes`] returns.
impl Serialize for Filter {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.to_bytes())
    }
}

/// From bytes, or from a sequence of them, as formats without a type for bytes have it.
impl<'de> Deserialize<'de> for Filter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(Bytes)
    }
}

struct Bytes;

impl<'de> Visitor<'de> for Bytes {
    type Value = Filter;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a snapshot of a Bloom filter")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Filter, E> {
        Filter::from_bytes(bytes).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut bytes: A) -> Result<Filter, A::Error> {
        // Grows as they come: the length that a sequence claims is not to be trusted.
        let mut all = Vec::new();
        while let Some(byte) = bytes.next_element::<u8>()? {
            all.push(byte);
        }
        self.visit_bytes(&all)
    }
}
