//! The base line: exact LRU by bytes.

use super::subjects::{Budget, Subject};
use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

pub struct Lru(Mutex<State>);

struct State {
    budget: u64,
    weight: u64,
    clock: u64,
    /// Size and time of the last use, by key.
    entries: HashMap<u64, (u32, u64)>,
    /// Keys by the time of their last use.
    order: BTreeMap<u64, u64>,
}

impl State {
    fn hit(&mut self, key: u64) -> bool {
        let Some((_, used)) = self.entries.get_mut(&key) else {
            return false;
        };
        self.order.remove(used);
        self.clock += 1;
        *used = self.clock;
        self.order.insert(self.clock, key);
        true
    }

    fn insert(&mut self, key: u64, size: u32) {
        self.clock += 1;
        if let Some((size, used)) = self.entries.insert(key, (size, self.clock)) {
            self.order.remove(&used);
            self.weight -= u64::from(size);
        }
        self.order.insert(self.clock, key);
        self.weight += u64::from(size);
        while self.weight > self.budget
            && let Some((_, oldest)) = self.order.pop_first()
            && let Some((size, _)) = self.entries.remove(&oldest)
        {
            self.weight -= u64::from(size);
        }
    }
}

impl Subject for Lru {
    const NAME: &'static str = "lru";

    fn build(budget: &Budget) -> Self {
        Lru(Mutex::new(State {
            budget: budget.bytes,
            weight: 0,
            clock: 0,
            entries: HashMap::new(),
            order: BTreeMap::new(),
        }))
    }

    fn hit(&self, key: u64) -> bool {
        self.0.lock().unwrap().hit(key)
    }

    fn insert(&self, key: u64, size: u32) {
        self.0.lock().unwrap().insert(key, size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zipf::Random;

    /// Keys and sizes, the one used last at the end.
    struct Slow(Vec<(u64, u32)>);

    impl Slow {
        fn weight(&self) -> u64 {
            self.0.iter().map(|&(_, size)| u64::from(size)).sum()
        }

        fn take(&mut self, key: u64) -> Option<(u64, u32)> {
            let at = self.0.iter().position(|&(k, _)| k == key)?;
            Some(self.0.remove(at))
        }

        fn hit(&mut self, key: u64) -> bool {
            let found = self.take(key);
            self.0.extend(found);
            found.is_some()
        }

        fn insert(&mut self, key: u64, size: u32, budget: u64) {
            self.take(key);
            self.0.push((key, size));
            while self.weight() > budget {
                self.0.remove(0);
            }
        }
    }

    #[test]
    fn as_a_slow_model_does() {
        let mut random = Random::new(7);
        for bytes in [1, 50, 400, 3000] {
            let lru = Lru::build(&Budget { bytes, entries: 1, heaviest: 1 });
            let mut slow = Slow(Vec::new());
            let (mut hits, mut most) = (0, 0);
            for _ in 0..5000 {
                let key = random.below(60);
                let hit = lru.hit(key);
                assert_eq!(hit, slow.hit(key));
                hits += u64::from(hit);
                // Some keys that are there are inserted again, at another size.
                if !hit || random.below(8) == 0 {
                    let size = 1 + random.below(bytes.min(90)) as u32;
                    lru.insert(key, size);
                    slow.insert(key, size, bytes);
                }
                let state = lru.0.lock().unwrap();
                assert_eq!(state.weight, slow.weight());
                assert!(state.order.values().eq(slow.0.iter().map(|(key, _)| key)));
                most = most.max(state.weight);
            }
            assert!(hits > 0 && most > bytes * 4 / 5, "{bytes} bytes: {hits} hits, {most} held");
        }
    }
}
