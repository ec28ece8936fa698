//! A bucket: one cache line with a control word and six slots, and extension lines where these do not
//! suffice. See DESIGN.md section 3 for the protocol; the invariants are cited as I1..I6 from there.

use std::ptr;

use arrayvec::ArrayVec;

use super::word::{Control, MAX_SLOTS, Word, bits};
#[cfg(not(seawall_loom))]
use crate::sync::ask_for_huge_pages;
use crate::sync::{AcqRel, Acquire, AtomicPtr, AtomicU64};

/// Slots in a bucket's own line. Loom models use short buckets, so that few keys fill one.
pub(crate) const BASE: u32 = if cfg!(seawall_loom) { 2 } else { 6 };
/// Slots in an extension line.
const EXTENSION: u32 = if cfg!(seawall_loom) { 2 } else { 7 };
/// Slots in a bucket with all its extension lines.
pub(crate) const CHAIN: u32 = if cfg!(seawall_loom) { 4 } else { MAX_SLOTS };

/// Zeroed memory is a valid, empty bucket that is not initialised yet.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Bucket {
    control: AtomicU64,
    next: AtomicPtr<Extension>,
    slots: [AtomicPtr<()>; BASE as usize],
}

#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Extension {
    next: AtomicPtr<Extension>,
    slots: [AtomicPtr<()>; EXTENSION as usize],
}

#[cfg(not(seawall_loom))]
const _: () = assert!(size_of::<Bucket>() == 64 && size_of::<Extension>() == 64);

/// The live words of a bucket.
pub(super) type Snapshot = ArrayVec<Seen, { MAX_SLOTS as usize }>;

/// A slot word found under a control word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) slot: u32,
    pub(crate) word: Word,
}

impl Bucket {
    #[inline]
    pub(crate) fn control(&self) -> Control {
        // ORDERING (P1, P2): Acquire pairs with every CAS of the control word: what the committer
        // wrote into the slot and the node is visible under the bit it set.
        Control::from_raw(self.control.load(Acquire))
    }

    pub(crate) fn change_control(&self, from: Control, to: Control) -> bool {
        // ORDERING (P1): Release publishes the claimed slot (commit), the REMOVED word (clean), all
        // placed words (publish); Acquire, because a freezer goes on to read the slots.
        self.control.compare_exchange(from.raw(), to.raw(), AcqRel, Acquire).is_ok()
    }

    /// Returns a slot that exists: one whose bit is set, or that `slot_or_extend` returned before.
    #[inline]
    pub(crate) fn slot(&self, slot: u32) -> &AtomicPtr<()> {
        match self.slots.get(slot as usize) {
            Some(own) => own,
            None => self.extended_slot(slot, false).expect("I6: a set bit has a line behind it"),
        }
    }

    /// Returns a slot, hanging on extension lines as needed; `None` beyond the last one.
    pub(crate) fn slot_or_extend(&self, slot: u32) -> Option<&AtomicPtr<()>> {
        match self.slots.get(slot as usize) {
            Some(own) => Some(own),
            None if slot < CHAIN => self.extended_slot(slot, true),
            None => None,
        }
    }

    #[cold]
    fn extended_slot(&self, slot: u32, extend: bool) -> Option<&AtomicPtr<()>> {
        let mut left = slot - BASE;
        let mut next = &self.next;
        loop {
            // ORDERING (P3): Acquire pairs with the Release in `hang`.
            let mut line = next.load(Acquire);
            if line.is_null() {
                if !extend {
                    return None;
                }
                line = hang(next);
            }
            // SAFETY: I6: a linked extension line stays until its table is freed, and `self` is part
            // of that table.
            let line = unsafe { &*line };
            if left < EXTENSION {
                return Some(&line.slots[left as usize]);
            }
            left -= EXTENSION;
            next = &line.next;
        }
    }

    /// A slot of the bucket's own line.
    #[inline]
    pub(super) fn own_slot(&self, slot: u32) -> &AtomicPtr<()> {
        &self.slots[slot as usize]
    }

    #[inline]
    pub(crate) fn word(&self, slot: u32) -> Word {
        // ORDERING (P1): Acquire pairs with the Release of the CAS that wrote the word: the node is
        // initialised, and a control word loaded later is no older than the one the writer saw.
        Word::from_raw(self.slot(slot).load(Acquire))
    }

    pub(crate) fn change_word(&self, slot: u32, from: Word, to: Word) -> bool {
        // ORDERING (P1): Release publishes the node; Acquire, because the winner goes on to read the
        // node it replaced or removed.
        self.slot(slot).compare_exchange(from.raw(), to.raw(), AcqRel, Acquire).is_ok()
    }

    /// Returns which slots of the bucket's own line have a word with the tag, whatever their bits say.
    ///
    /// Without branches: which slot a key is in cannot be predicted.
    #[inline]
    pub(crate) fn tagged(&self, tag: usize) -> u32 {
        let mut matches = 0;
        for slot in 0..BASE {
            // ORDERING (P1): Acquire, also for a miss: who no longer finds a key sees what its remover
            // did before.
            let word = Word::from_raw(self.slots[slot as usize].load(Acquire));
            matches |= u32::from(word.has_tag(tag)) << slot;
        }
        matches
    }

    /// Returns whether any occupied slot lies in an extension line.
    #[inline]
    pub(crate) fn is_extended(control: Control) -> bool {
        control.occupied() >> BASE != 0
    }

    /// Reads the occupied slots whose words are live (not removed) and returns them if no bit changed
    /// meanwhile, so that all of them were committed at one instant; `None` if one did, or if the
    /// bucket is not in use.
    pub(crate) fn snapshot(&self, into: &mut Snapshot) -> bool {
        into.clear();
        let control = self.control();
        if !control.is_ready() {
            return false;
        }
        for slot in bits(control.occupied()) {
            let word = self.word(slot);
            if !word.is_removed() {
                into.push(Seen { slot, word });
            }
        }
        self.control() == control
    }

    /// Whether a slot holds a word, whatever its bit says.
    #[cfg(test)]
    pub(super) fn holds_word(&self, slot: u32) -> bool {
        match self.slots.get(slot as usize) {
            Some(own) => !Word::from_raw(own.load(Acquire)).is_free(),
            None => self
                .extended_slot(slot, false)
                .is_some_and(|own| !Word::from_raw(own.load(Acquire)).is_free()),
        }
    }

    /// Frees the extension lines.
    ///
    /// # Safety
    /// Nobody else uses the bucket any more, and it is not used again.
    unsafe fn free_extensions(&self) {
        // ORDERING: none needed: exclusive by the caller.
        let mut line = self.next.load(Acquire);
        while !line.is_null() {
            // SAFETY: lines come from `Box::into_raw` in `hang` and are linked once.
            let owned = unsafe { Box::from_raw(line) };
            line = owned.next.load(Acquire);
        }
    }
}

/// Hangs a new extension line on a link, or returns the one another thread hung on first.
fn hang(next: &AtomicPtr<Extension>) -> *mut Extension {
    let line = Box::into_raw(Box::<Extension>::default());
    // ORDERING (P3): Release publishes the zeroed line; Acquire on failure: the winner's line is used.
    match next.compare_exchange(ptr::null_mut(), line, AcqRel, Acquire) {
        Ok(_) => line,
        Err(winner) => {
            // SAFETY: ours alone: it was not linked.
            drop(unsafe { Box::from_raw(line) });
            winner
        }
    }
}

/// Where a hash belongs in an array of `len` buckets.
#[inline]
pub(super) fn index_of(hash: u64, len: usize) -> usize {
    ((u128::from(hash) * len as u128) >> 64) as usize
}

/// A fixed array of buckets in memory that the system zeroes when it is first touched.
#[derive(Debug)]
pub(crate) struct Buckets {
    first: ptr::NonNull<Bucket>,
    len: usize,
    /// What was allocated: more than the array, so that it can begin on a cache line. (An aligned
    /// zeroed allocation would touch all of it at once.)
    #[cfg(not(seawall_loom))]
    raw: ptr::NonNull<u8>,
}

// SAFETY: a `Buckets` owns its array like a boxed slice; buckets are made of atomics.
unsafe impl Send for Buckets {}
// SAFETY: as above.
unsafe impl Sync for Buckets {}

#[cfg(not(seawall_loom))]
impl Buckets {
    fn layout(len: usize) -> Option<std::alloc::Layout> {
        let bytes = len.checked_add(1)?.checked_mul(size_of::<Bucket>())?;
        std::alloc::Layout::from_size_align(bytes, align_of::<usize>()).ok()
    }

    /// Returns `None` if the system has not that much memory.
    pub(crate) fn try_new(len: usize) -> Option<Self> {
        let layout = Self::layout(len)?;
        // SAFETY: the layout is not empty.
        let raw = ptr::NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?;
        ask_for_huge_pages(raw.as_ptr(), layout.size());
        let gap = raw.align_offset(align_of::<Bucket>());
        // SAFETY: less than the one bucket that `layout` has to spare.
        let first = unsafe { raw.add(gap) }.cast();
        Some(Buckets { first, len, raw })
    }
}

#[cfg(seawall_loom)]
impl Buckets {
    pub(crate) fn try_new(len: usize) -> Option<Self> {
        let buckets: Box<[Bucket]> = (0..len).map(|_| Bucket::default()).collect();
        Some(Buckets { first: ptr::NonNull::new(Box::into_raw(buckets).cast())?, len })
    }
}

impl Buckets {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The array's address, as a hint.
    pub(super) fn first(&self) -> *mut Bucket {
        self.first.as_ptr()
    }

    /// The bucket at `index`, which must be below `len`.
    #[inline]
    pub(crate) fn at(&self, index: usize) -> &Bucket {
        assert!(index < self.len);
        // SAFETY: inside the array, by the assertion.
        let bucket = unsafe { self.first.add(index) };
        // SAFETY: the array holds `len` buckets (zeroed memory is valid for them) for as long as `self`.
        unsafe { bucket.as_ref() }
    }

    /// Where a hash belongs: the array divides the range of hashes evenly, so that the buckets of an
    /// array twice as long divide each bucket of this one in two.
    #[inline]
    pub(crate) fn index_of(&self, hash: u64) -> usize {
        index_of(hash, self.len)
    }

    /// The lowest hash that belongs to the bucket after `index`, or `None` after the last.
    pub(crate) fn end_of(&self, index: usize) -> Option<u64> {
        let end = ((index as u128 + 1) << 64).div_ceil(self.len as u128);
        u64::try_from(end).ok()
    }
}

impl Drop for Buckets {
    fn drop(&mut self) {
        for index in 0..self.len {
            // SAFETY: `&mut self`, and this is the end of the array.
            unsafe { self.at(index).free_extensions() };
        }
        #[cfg(not(seawall_loom))]
        {
            let layout = Self::layout(self.len).expect("it was valid when it was allocated");
            // SAFETY: allocated in `try_new` with this layout; buckets need no drop.
            unsafe { std::alloc::dealloc(self.raw.as_ptr(), layout) };
        }
        #[cfg(seawall_loom)]
        {
            let array = ptr::slice_from_raw_parts_mut(self.first.as_ptr(), self.len);
            // SAFETY: made by `Box::into_raw` in `try_new`.
            drop(unsafe { Box::from_raw(array) });
        }
    }
}
