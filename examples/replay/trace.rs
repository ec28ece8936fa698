//! A trace in memory: keys numbered in the order in which they first occur.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// Positions in a trace and numbers of keys are 32 bits wide; the last one is no position.
const MAX_REQUESTS: usize = u32::MAX as usize - 1;

/// Requests, at least one of them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Trace {
    requests: Vec<u32>,
    /// One for each request, or none at all.
    sizes: Vec<u64>,
    distinct: usize,
}

impl Trace {
    /// The number of each request's key.
    pub(crate) fn requests(&self) -> &[u32] {
        &self.requests
    }

    pub(crate) fn has_sizes(&self) -> bool {
        !self.sizes.is_empty()
    }

    /// The size of the request at a position; 1 where sizes are not known.
    #[inline]
    pub(crate) fn size(&self, at: usize) -> u64 {
        self.sizes.get(at).copied().unwrap_or(1)
    }

    pub(crate) fn distinct(&self) -> usize {
        self.distinct
    }

    /// Sum of the sizes of all requests, where sizes are known.
    pub(crate) fn bytes(&self) -> Option<u128> {
        self.has_sizes().then(|| self.sizes.iter().map(|size| u128::from(*size)).sum())
    }
}

/// Takes a trace in, request by request.
pub(crate) struct Builder<K> {
    numbers: HashMap<K, u32, ahash::RandomState>,
    requests: Vec<u32>,
    sizes: Vec<u64>,
}

impl<K: Hash + Eq> Builder<K> {
    pub(crate) fn new() -> Self {
        Builder { numbers: HashMap::default(), requests: Vec::new(), sizes: Vec::new() }
    }

    /// Requests up to now.
    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Adds a request. All have a size, or none has.
    pub(crate) fn push<Q>(&mut self, key: &Q, size: Option<u64>) -> Result<(), String>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        if self.requests.len() == MAX_REQUESTS {
            return Err(format!("more than {MAX_REQUESTS} requests"));
        }
        let number = match self.numbers.get(key) {
            Some(number) => *number,
            None => {
                let number = self.numbers.len() as u32;
                self.numbers.insert(key.to_owned(), number);
                number
            }
        };
        self.requests.push(number);
        self.sizes.extend(size);
        Ok(())
    }

    pub(crate) fn finish(self) -> Result<Trace, String> {
        if self.requests.is_empty() {
            return Err("no requests in it".to_owned());
        }
        let distinct = self.numbers.len();
        Ok(Trace { requests: self.requests, sizes: self.sizes, distinct })
    }
}
