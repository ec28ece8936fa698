//! What an eviction hand comes by: the live nodes of some buckets, judged by their slot words alone.

use std::marker::PhantomData;
use std::ptr;

use arrayvec::ArrayVec;

use super::bucket::{Bucket, Seen};
use super::reclaim::{Guard, check_read};
use super::word::{Control, Policy, Word, bits};
use super::{Found, Map, Node, Rehash, prefetch, wrapped};

/// Buckets that a sample has room for.
const PLACES: usize = 32;

/// The live nodes of some buckets, each with a rank above zero. What changes in a bucket takes its nodes
/// out of the sample: that is looked at when one is taken out of it.
///
/// The nodes are not kept, only where the first of each region is: mostly no other is wanted, and if one
/// is, the buckets are in the cache.
pub(crate) struct Sample<'g, N> {
    places: ArrayVec<Place<'g>, PLACES>,
    len: usize,
    firsts: Firsts,
    /// Whether the firsts have to be looked for.
    taken: bool,
    /// Whether others have changed a bucket meanwhile, so that something was missed.
    disturbed: bool,
    node: PhantomData<&'g N>,
}

struct Place<'g> {
    bucket: &'g Bucket,
    index: usize,
    control: Control,
    /// The slots that were not taken out.
    left: u32,
}

/// The highest keys of the small region and of main; zero: none. A key is `rank << 16 | place << 8 | slot`,
/// so that the maximum tells all.
#[derive(Clone, Copy, Default)]
struct Firsts {
    small: u32,
    main: u32,
}

impl Firsts {
    /// Without branches: they could not be predicted.
    #[inline]
    fn add(&mut self, key: u32, policy: Policy) {
        let main = 0_u32.wrapping_sub(u32::from(policy.is_main()));
        self.main = self.main.max(key & main);
        self.small = self.small.max(key & !main);
    }
}

impl Place<'_> {
    /// Adds the live nodes; returns how many. Reads words only, which may be of nodes that are not there yet
    /// or not any more.
    #[inline]
    fn look(&self, place: usize, rank: impl Fn(Policy) -> u8, firsts: &mut Firsts) -> usize {
        let mut live = 0;
        for slot in bits(self.left) {
            let word = self.bucket.word(slot);
            if is_live(word) {
                let policy = word.policy();
                firsts.add(u32::from(rank(policy)) << 16 | (place as u32) << 8 | slot, policy);
                live += 1;
            }
        }
        live
    }

    /// What a slot has, if that is a live node's word.
    #[inline]
    fn seen(&self, slot: u32) -> Option<Seen> {
        let seen = Seen { slot, word: self.bucket.word(slot) };
        // The word was read before: under an unchanged control word it is a committed node's (I2).
        (is_live(seen.word) && self.bucket.control() == self.control).then_some(seen)
    }
}

#[inline]
fn is_live(word: Word) -> bool {
    !word.is_removed() && !word.is_pending()
}

impl<'g, N> Sample<'g, N> {
    pub(crate) fn new() -> Self {
        Sample {
            places: ArrayVec::new(),
            len: 0,
            firsts: Firsts::default(),
            taken: false,
            disturbed: false,
            node: PhantomData,
        }
    }

    /// Whether there may be more than was found: other threads have made progress meanwhile.
    pub(crate) fn is_disturbed(&self) -> bool {
        self.disturbed
    }

    /// How many there were when the sample was made.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether the first of the small region is another node than this one. A new node is the last of its
    /// region, so if it is the first there is no other, or one as new.
    #[inline]
    pub(crate) fn has_small_but(&self, node: *const N) -> bool {
        let key = self.firsts.small;
        key > 0 && !ptr::eq(self.word_of(key).node::<N>(), node)
    }

    /// The bucket and the slot of a key.
    #[inline]
    fn place_of(&self, key: u32) -> (&Place<'g>, u32) {
        (&self.places[(key >> 8) as usize & 0xFF], key & 0xFF)
    }

    #[inline]
    fn word_of(&self, key: u32) -> Word {
        let (place, slot) = self.place_of(key);
        place.bucket.word(slot)
    }

    /// The policy of main's first.
    #[inline]
    pub(crate) fn first_of_main(&self) -> Option<Policy> {
        let key = self.firsts.main;
        (key > 0).then(|| self.word_of(key).policy())
    }

    /// Changes the policy bits of main's first, which stays in the sample, if nothing has changed since.
    #[cold]
    #[inline(never)]
    pub(crate) fn stamp_first_of_main(&self, policy: Policy) {
        let (place, slot) = self.place_of(self.firsts.main);
        if let Some(seen) = place.seen(slot) {
            let &Place { bucket, index, .. } = place;
            Sampled { bucket, seen, index, node: PhantomData::<&N> }.stamp(policy);
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new();
    }

    /// Takes out the node of the highest rank, of one region if there is any.
    #[inline]
    pub(crate) fn take_first(
        &mut self,
        small_first: bool,
        rank: impl Fn(Policy) -> u8,
    ) -> Option<Sampled<'g, N>> {
        loop {
            if self.taken {
                self.look_again(&rank);
            }
            let Firsts { small, main } = self.firsts;
            let key = match small_first {
                true if small > 0 => small,
                false if main == 0 => small,
                _ => main,
            };
            if key == 0 {
                return None;
            }
            self.taken = true;
            let place = &mut self.places[(key >> 8) as usize & 0xFF];
            place.left &= !(1 << (key & 0xFF));
            if let Some(seen) = place.seen(key & 0xFF) {
                let Place { bucket, index, .. } = *place;
                return Some(Sampled { bucket, seen, index, node: PhantomData });
            }
            self.disturbed = true;
        }
    }

    /// Finds out which the first ones are, of those that are left.
    #[cold]
    fn look_again(&mut self, rank: impl Fn(Policy) -> u8) {
        self.firsts = Firsts::default();
        for (at, place) in self.places.iter().enumerate() {
            place.look(at, &rank, &mut self.firsts);
        }
        self.taken = false;
    }

    /// The nodes that were not taken out.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Sampled<'g, N>> {
        self.places.iter().flat_map(|place| {
            let &Place { bucket, index, left, .. } = place;
            let seen = bits(left).filter_map(|slot| place.seen(slot));
            seen.map(move |seen| Sampled { bucket, seen, index, node: PhantomData })
        })
    }
}

impl<N: Node, H: Rehash<N>> Map<N, H> {
    /// Adds the live nodes of the bucket at a position to a sample that has room, each with the rank that
    /// its policy bits give it; none if the bucket is being changed or moved. Returns the position of the
    /// next bucket; positions beyond the last bucket wrap round.
    ///
    /// Reads no node, and asks for the next bucket's line.
    #[inline]
    pub(crate) fn sample<'g>(
        &'g self,
        position: u64,
        into: &mut Sample<'g, N>,
        rank: impl Fn(Policy) -> u8,
        guard: &'g Guard,
    ) -> u64 {
        let table = self.root(guard);
        let index = wrapped(position, table.buckets.len());
        let bucket = table.buckets.at(index);
        prefetch(ptr::from_ref(bucket).wrapping_add(1));
        let next = index as u64 + 1;
        let control = bucket.control();
        if !control.is_ready() {
            self.make_ready_if_growing(table, index, guard);
            return next;
        }
        let place = Place { bucket, index, control, left: control.occupied() };
        let mut firsts = into.firsts;
        let live = place.look(into.places.len(), rank, &mut firsts);
        if live == 0 {
            into.disturbed |= bucket.control() != control;
        } else if into.places.try_push(place).is_ok() {
            into.len += live;
            into.firsts = firsts;
        }
        next
    }
}

/// A live node that an eviction hand came by; its node has not been looked at.
pub(crate) struct Sampled<'g, N> {
    bucket: &'g Bucket,
    seen: Seen,
    index: usize,
    node: PhantomData<&'g N>,
}

impl<'g, N> Sampled<'g, N> {
    #[inline]
    pub(crate) fn policy(&self) -> Policy {
        self.seen.word.policy()
    }

    /// Changes the policy's bits, if nothing has changed since.
    #[cold]
    pub(crate) fn stamp(&mut self, policy: Policy) {
        let Seen { slot, word } = self.seen;
        let stamped = word.with_policy(policy);
        if word.is_plain() && self.bucket.change_word(slot, word, stamped) {
            self.seen.word = stamped;
        }
    }

    /// The index of its bucket.
    pub(crate) fn bucket(&self) -> usize {
        self.index
    }

    pub(crate) fn is(&self, node: *const N) -> bool {
        ptr::eq(self.seen.word.node::<N>(), node)
    }

    #[inline]
    pub(crate) fn found(&self, guard: &'g Guard) -> Found<'g, N> {
        let Sampled { bucket, seen, .. } = *self;
        check_read(seen.word.node::<N>(), guard);
        // SAFETY: I2: the sample was validated, after we pinned.
        let node = unsafe { &*seen.word.node::<N>() };
        Found { bucket, seen, node }
    }
}
